import io
import os
import pty
import re
import threading

import pytest
from rich.console import Console

from rollplex.telemetry.keys import Value
from rollplex.telemetry.progress import Progress, sparkline


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


ROW: dict[str, Value] = {
    "step": 1,
    "reward/mean": 0.25,
    "loss": 0.0125,
    "kl/mean": 0.001,
    "tokens/per_second": 1843.2,
    "seconds/step": 2.0,
    "seconds/hidden": 0.75,
    "seconds/exposed": 0.5,
}


def test_progress_in_a_log_is_one_plain_line_a_step() -> None:
    out, clock = io.StringIO(), Clock()
    with Progress(100, console=Console(file=out, width=40), clock=clock) as progress:
        with progress.phase("starting engines"):
            clock.now = 12.5
        clock.now = 14.5
        progress.step(ROW)
        clock.now = 18.5
        progress.step({**ROW, "step": 2, "eval/reward/mean": 0.5, "seconds/saved": -0.125})
    assert out.getvalue().splitlines() == [
        "starting engines ...",
        "starting engines: done in 12.5 s",
        "step 1/100  reward 0.250  loss 0.0125  kl 0.0010  tokens/s 1,843  seconds 2.00  hidden 0.75  exposed 0.50"
        "  eta 3 min 18 s",
        # the pace is what passed on the clock, 6 s for two steps, not the 2 s that a step itself takes
        "step 2/100  reward 0.250  loss 0.0125  kl 0.0010  eval 0.500  tokens/s 1,843  seconds 2.00  hidden 0.75"
        "  exposed 0.50  saved -0.12  eta 4 min 54 s",
    ]


def test_progress_phase_that_fails_says_so() -> None:
    out, clock = io.StringIO(), Clock()
    progress = Progress(1, console=Console(file=out), clock=clock)

    def start() -> None:
        with progress.phase("starting engines"):
            clock.now = 3.0
            raise RuntimeError

    with pytest.raises(RuntimeError):
        start()
    assert out.getvalue().splitlines()[-1] == "starting engines: failed after 3.0 s"


def test_progress_phases_nest_and_each_counts_its_own_seconds() -> None:
    out, clock = io.StringIO(), Clock()
    progress = Progress(1, console=Console(file=out), clock=clock)
    with progress.phase("evaluating"):
        clock.now = 1.0
        with progress.phase("blanking frames"):
            clock.now = 3.0
        clock.now = 4.0
    assert out.getvalue().splitlines()[2:] == ["blanking frames: done in 2.0 s", "evaluating: done in 4.0 s"]


def test_progress_log_shows_markup_as_text() -> None:
    out = io.StringIO()
    Progress(1, console=Console(file=out)).say("runs/[bold]x[/bold] moved")
    assert out.getvalue() == "runs/[bold]x[/bold] moved\n"


def test_progress_forced_colours_do_not_make_a_log_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    out = io.StringIO()
    with Progress(3, console=Console(file=out)) as progress:
        progress.step(ROW)
    assert "\x1b[" not in out.getvalue()
    assert out.getvalue().startswith("step 1/3")


def test_progress_on_a_terminal_redraws_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    screen = _terminal_output()
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen)
    assert "starting engines 7 s" in text
    assert "starting engines: done in 7.0 s" in text
    assert "step 2/4" in text
    assert re.search(r"reward\s+loss\s+kl\s+eval\s+tokens/s\s+seconds\s+hidden\s+exposed", text)
    last = text[text.rindex("step 2/4") :]
    assert "0.500" in last  # the reward of step 2
    assert "0.625" in last  # the evaluation of step 1, kept
    assert "▁█" in last
    assert "\x1b[1A" in screen  # it moved up to redraw instead of scrolling


def _terminal_output() -> str:
    master, slave = pty.openpty()
    chunks: list[bytes] = []

    def read() -> None:
        try:
            while chunk := os.read(master, 4096):
                chunks.append(chunk)
        except OSError:  # the other side is closed
            return

    reader = threading.Thread(target=read)
    reader.start()
    clock = Clock()
    with os.fdopen(slave, "w") as out:
        console = Console(file=out, width=120)
        with Progress(4, console=console, clock=clock) as progress:
            with progress.phase("starting engines"):
                clock.now = 7.0
                assert progress._live is not None
                progress._live.refresh()
            progress.step({**ROW, "eval/reward/mean": 0.625})
            progress.step({**ROW, "step": 2, "reward/mean": 0.5})
    reader.join()
    os.close(master)
    return b"".join(chunks).decode()


@pytest.mark.parametrize(
    ("values", "drawn"),
    [([], ""), ([0.5], "▁"), ([0.0, 1.0, 0.5], "▁█▅"), ([0.0, float("nan"), 7.0], "▁ █"), ([float("inf")], "")],
)
def test_sparkline_spans_the_finite_values(values: list[float], drawn: str) -> None:
    assert sparkline(values) == drawn


def test_progress_gives_the_terminal_back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second Ctrl-C ends the process within the handler: nobody else will show the cursor again."""
    monkeypatch.setenv("TERM", "xterm")
    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as out:
        progress = Progress(4, console=Console(file=out, width=120))
        progress.release()
        shown = b""
        while not shown.endswith(b"\n"):  # a terminal hands over what it has, and that may be a part
            shown += os.read(master, 100)
        assert shown == b"\x1b[?25h\r\n"
        log = io.StringIO()
        Progress(4, console=Console(file=log)).release()
        assert log.getvalue() == ""
    os.close(master)
