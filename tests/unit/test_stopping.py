"""Signals, in processes of their own."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

LOOP = """
import signal, sys, time
from rollplex.stopping import StepDropped, Stop

def say(line):
    print(line, flush=True)

stop = Stop(say, release=lambda: say("released"))
before = signal.getsignal(signal.SIGTERM)
with stop.listening():
    try:
        say("ready")
        for _ in range(400):
            time.sleep(0.02)
            stop.check()
    except StepDropped:
        say("dropped")
    except KeyboardInterrupt:  # closing an engine takes longer than a person waits
        time.sleep(60)
assert signal.getsignal(signal.SIGTERM) is before
sys.exit(stop.exit_code)
"""
INTERRUPT, TERMINATE = "Ctrl-C: finishing the step", "SIGTERM: saving the last finished step"


@pytest.mark.parametrize(
    ("signals", "lines", "code"),
    [
        ([signal.SIGTERM], [TERMINATE, "dropped"], 143),
        ([signal.SIGINT, signal.SIGINT], [INTERRUPT, "released"], 130),
        ([signal.SIGINT, signal.SIGTERM], [INTERRUPT, TERMINATE, "dropped"], 143),
    ],
    ids=["SIGTERM", "Ctrl-C twice", "Ctrl-C, then SIGTERM"],
)
def test_signals(signals: list[signal.Signals], lines: list[str], code: int) -> None:
    restore = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # a background shell ignores it
    with subprocess.Popen([sys.executable, "-c", restore + LOOP], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        said: list[str] = []
        for number in signals:
            process.send_signal(number)
            if len(said) < len(lines):
                said.append(process.stdout.readline())
        said += process.stdout
        assert process.wait(20) == code
    assert len(said) == len(lines)
    assert all(line.startswith(expected) for line, expected in zip(said, lines, strict=True)), said


def test_ignored_signal_stays_ignored() -> None:
    ignore = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
    with subprocess.Popen([sys.executable, "-c", ignore + LOOP], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 143
        assert process.stdout.read().splitlines() == [TERMINATE, "dropped"]
