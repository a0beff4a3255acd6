"""The weighted sum, and functions that hang, raise, crash or return nonsense (case 31)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rollplex.api.errors import JobError
from rollplex.api.reward import RewardSpec
from rollplex.reward.pool import RewardError, RewardPool, Score, refuse_if_all_failed

FUNCTIONS = """
import os, sys, time
from helper import HALF  # a file beside this one

print("imported")

class Odd(Exception):
    pass

def length(response_text, answer, row):
    return len(response_text) * HALF + row["bonus"]

def moody(response_text, answer, row):
    if response_text == "hang":
        while True:
            try:
                time.sleep(1000)
            except BaseException:
                pass
    if response_text == "raise":
        raise Odd("bad mood")
    if response_text == "raise a page":
        raise Odd("bad\\n\\n  mood\\r\\nof mine")
    if response_text == "raise a known page":
        raise ValueError("bad\\nmood")
    if response_text == "exit":
        sys.exit(0)
    if response_text == "crash":
        os._exit(9)
    return {"nan": float("nan"), "none": None, "text": "many", "true": True}.get(response_text, 0.25)

def two(response_text, answer):
    return 1.0

number = 3
"""


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rewards")
    (folder / "helper.py").write_text("HALF = 0.5\n")
    (folder / "rewards.py").write_text(FUNCTIONS)
    (folder / "broken.py").write_text("import no_such_library\n")
    return folder / "rewards.py"


@pytest.fixture(scope="module")
def pool(functions: Path) -> Iterator[RewardPool]:
    pool = RewardPool(
        [
            RewardSpec(name="exact"),
            RewardSpec(python=f"{functions}:length", weight=2.0),
            RewardSpec(python=f"{functions}:moody", weight=-1.0, timeout_seconds=1.0),
        ],
        workers=2,
    )
    yield pool
    pool.close()


def score(pool: RewardPool, text: str, answer: Any = "red") -> Score:
    return pool.submit(text, answer, {"bonus": 1}, 7).result(timeout=20)


def test_submit_sums_the_weighted_parts(pool: RewardPool) -> None:
    assert score(pool, "red") == Score(1.0 + 2.0 * 2.5 - 0.25, {"exact": 1.0, "length": 2.5, "moody": 0.25})
    assert list(score(pool, "blue").parts) == ["exact", "length", "moody"]


def test_submit_takes_a_boolean_as_a_number(pool: RewardPool) -> None:
    assert score(pool, "true").parts["moody"] == 1.0


@pytest.mark.parametrize(
    ("text", "problem", "detail"),
    [
        ("hang", "timeout", "no result within 1 s"),
        ("raise", "error", "Odd: bad mood"),
        ("raise a page", "error", "Odd: bad mood of mine"),
        ("raise a known page", "error", "ValueError: bad mood"),
        ("exit", "error", "SystemExit: 0"),
        ("crash", "error", "exit code 9"),
        ("nan", "error", "it returned nan"),
        ("none", "error", "it returned None, which is not a number"),
        ("text", "error", "it returned 'many', which is not a number"),
    ],
)
def test_a_failing_part_scores_zero_and_the_others_keep_their_values(
    pool: RewardPool, text: str, problem: str, detail: str
) -> None:
    got = score(pool, text, answer=text)
    assert got.problem == problem
    assert got.parts == {"exact": 1.0, "length": len(text) / 2 + 1, "moody": 0.0}
    assert got.value == 1.0 + 2.0 * (len(text) / 2 + 1)
    assert detail in got.details["moody"]
    assert "\n" not in got.details["moody"]


def test_samples_of_a_step_submitted_off_the_main_thread_keep_their_own_scores(pool: RewardPool) -> None:
    texts = ["ok"] * 6 + ["hang", "raise"] + ["ok"] * 8
    scores: list[Score] = []

    def step() -> None:
        futures = [pool.submit(text, "ok", {"bonus": 0}, 1) for text in texts]
        scores.extend(future.result() for future in futures)

    started = time.monotonic()
    thread = threading.Thread(target=step)
    thread.start()
    thread.join(timeout=20)
    assert not thread.is_alive()
    assert time.monotonic() - started < 10
    assert [got.problem for got in scores] == [None] * 6 + ["timeout", "error"] + [None] * 8
    assert {got.value for got in scores if got.problem is None} == {1.0 + 2.0 * 1.0 - 0.25}
    refuse_if_all_failed(scores)


def test_a_part_that_fails_for_every_sample_is_an_error(pool: RewardPool) -> None:
    scores = [score(pool, "raise"), score(pool, "none")]
    with pytest.raises(RewardError, match="reward moody failed for all 2 samples of the step; the last: it returned"):
        refuse_if_all_failed(scores)


def test_exact_alone_starts_no_process_and_is_ready_at_once() -> None:
    before = threading.active_count()
    pool = RewardPool([RewardSpec(name="exact", weight=3.0)], workers=2)
    future = pool.submit("Red.", "red", {}, 1)
    assert future.done()
    assert future.result() == Score(3.0, {"exact": 1.0})
    assert threading.active_count() == before


def test_two_parts_of_one_name_are_told_apart() -> None:
    pool = RewardPool([RewardSpec(name="exact"), RewardSpec(name="exact", weight=0.5)], workers=1)
    assert pool.submit("red", "red", {}, 1).result() == Score(1.5, {"exact": 1.0, "exact#2": 1.0})


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (lambda file: f"{file.parent}/none.py:length", "there is no file"),
        (lambda file: f"{file}:lenght", "has no function lenght; it has length, moody, two"),
        (lambda file: f"{file}:number", "has no function number"),
        (lambda file: f"{file}:two", r"it is called as f\(response_text, answer, row\), but too many positional"),
        (lambda file: f"{file.parent}/broken.py:f", "raised ModuleNotFoundError: No module named 'no_such_library'"),
    ],
)
def test_a_function_that_cannot_be_called_is_a_fault_of_the_job(
    functions: Path, reference: Callable[[Path], str], message: str
) -> None:
    with pytest.raises(JobError, match=message) as caught:
        RewardPool([RewardSpec(name="exact"), RewardSpec(python=reference(functions))], workers=1)
    assert [fault.path for fault in caught.value.faults] == ["spec.reward.1.python"]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "options", "answer", "right", "wrong", "reached"),
    [
        ("exact", {}, "red", "Red.", "blue", (1.0, 0.0)),
        ("choice", {"choices": 4}, "B", "(b) red", "(A)", (1.0, 0.0)),
        ("numeric", {"absolute": 0.5}, 3, "about 3.4", "4", (1.0, 0.0)),
        ("iou", {"kind": "span"}, [0, 4], "[2, 4]", "[5, 6]", (0.5, 0.0)),
        ("format", {"pattern": "<answer>.*</answer>"}, None, "<answer>x</answer>", "x", (1.0, 0.0)),
        ("length", {"maxTokens": 8, "bufferTokens": 4}, None, "seven tokens", "any text of 7", (-0.75, -0.75)),
    ],
)
def test_every_named_verifier_gets_its_options(
    name: Any, options: dict[str, Any], answer: Any, right: str, wrong: str, reached: tuple[float, float]
) -> None:
    pool = RewardPool([RewardSpec(name=name, options=options, weight=2.0)], workers=1)
    scores = [pool.submit(text, answer, {}, 7).result(timeout=60) for text in (right, wrong)]
    pool.close()
    assert scores == [Score(2.0 * value, {name: value}) for value in reached]


def test_an_answer_that_a_verifier_cannot_read_is_counted_and_the_other_parts_stand() -> None:
    pool = RewardPool([RewardSpec(name="numeric"), RewardSpec(name="exact")], workers=1)
    got = pool.submit("red", "red", {}, 1).result()
    assert (got.value, got.problem, got.parts) == (1.0, "error", {"numeric": 0.0, "exact": 1.0})
    with pytest.raises(RewardError, match=r"reward numeric failed for all 2 samples .* answer 'red' has no number"):
        refuse_if_all_failed([got, got])


def test_a_pattern_without_end_is_killed_in_time() -> None:
    spec = RewardSpec(name="format", options={"pattern": "(a+)+b"}, timeout_seconds=1.0)
    pool = RewardPool([spec, RewardSpec(name="exact")], workers=1)
    scores = [pool.submit(text, "ab", {}, 1) for text in ("a" * 64, "ab")]
    assert scores[0].result(timeout=60).problem == "timeout"
    assert scores[1].result(timeout=60) == Score(2.0, {"format": 1.0, "exact": 1.0})
    pool.close()


def test_importing_a_file_counts_against_no_samples_limit(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import time\ntime.sleep(1.0)\n"
        "def f(response_text, answer, row):\n    time.sleep(1000 * (response_text == 'hang'))\n    return 1.0\n"
    )
    pool = RewardPool([RewardSpec(python=f"{tmp_path}/slow.py:f", timeout_seconds=0.5)], workers=1)
    scores = [pool.submit(text, "", {}, 1) for text in ("a", "hang", "b")]  # after the kill a new process imports again
    assert [score.result(timeout=20).problem for score in scores] == [None, "timeout", None]
    pool.close()


def test_no_parts_score_at_once_and_nothing() -> None:
    assert RewardPool([], workers=1).submit("red", "red", {}, 1).result(timeout=5) == Score(0.0, {})
