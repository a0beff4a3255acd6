"""``rollplex show`` on a run that was really trained."""

from __future__ import annotations

from pathlib import Path

from rollplex.rollout.replay import read_rollouts
from tests.engine.train.conftest import STEPS, Run, command


def test_show_makes_a_page_of_a_live_run(trained: Run, workplace: Path) -> None:
    done = command("show", "live", cwd=workplace)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"runs/live/show-step-{STEPS:06d}.html\n"
    page = (workplace / done.stdout.strip()).read_text()
    saved = read_rollouts(trained.rollouts / f"step-{STEPS:06d}.jsonl")
    assert page.count('class="response"') == len(saved) == 16
    assert page.count("<section") == 4
    assert page.count("<img src=") == 4 * 4  # two seconds of each video at 2 fps
    assert "The prompts" not in page  # as a note says what is missing
    assert "ended by &lt;|im_end|&gt;" in page
    assert "held-out reward" in page


def test_show_refuses_a_step_that_is_not_saved(trained: Run, workplace: Path) -> None:
    done = command("show", "runs/live", "--step", "9", cwd=workplace)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"--step: 9 is not saved; there are {STEPS} steps from 1 to {STEPS}\n"
