"""The command line: what it prints, its exit codes, and what it does not import."""

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from rollplex.api import JobError, RollplexJob, RunStopped
from rollplex.api.errors import RunInterrupted, StepFailed
from rollplex.cli import app

WHOLE = Path(__file__).parent / "api" / "data" / "clevrer-32b.yaml"
SMALLEST = """
apiVersion: rollplex.io/v1alpha1
kind: RollplexJob
metadata: {name: small}
spec: {model: {path: m}, data: {train: t.jsonl}, reward: [{name: exact}], training: {steps: 3}}
"""


@pytest.fixture
def small(tmp_path: Path) -> str:
    path = tmp_path / "small.yaml"
    path.write_text(SMALLEST)
    return str(path)


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[..., Any]], list[tuple[Any, ...]]]:
    """Puts a function in the place of ``rollplex.NAME.NAME``; returns the list of its calls."""

    def put(name: str, function: Callable[..., Any]) -> list[tuple[Any, ...]]:
        calls: list[tuple[Any, ...]] = []
        module = ModuleType(f"rollplex.{name}")

        def record(*arguments: Any) -> Any:
            calls.append(arguments)
            return function(*arguments)

        setattr(module, name, record)
        monkeypatch.setitem(sys.modules, f"rollplex.{name}", module)
        return calls

    return put


def nothing(*_: Any) -> None:
    return None


def test_validate_prints_one_line_for_a_valid_job(small: str) -> None:
    line = "small is valid: grpo, 3 steps of 128 prompts x 8, stream\n"
    assert run("validate", small) == (0, line, "")


def test_validate_says_what_train_would_still_refuse() -> None:
    code, out, _ = run("validate", str(WHOLE), "--cluster")
    assert code == 0
    assert len(out.splitlines()) == 1
    assert "not yet in rollplex train: spec.parallelism.train.tensor" in out


def test_validate_prints_every_fault_on_its_line(small: str) -> None:
    code, out, err = run("validate", small, "--set", "algorithm.groupSize=1", "--set", "rollout.topP=0.9")
    assert (code, err) == (2, "")
    lines = out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["spec.algorithm.groupSize", "spec.rollout.topP"]


def test_validate_checks_the_arithmetic_of_ranks(small: str) -> None:
    assert run("validate", small, "--ranks", "4")[0] == 0
    code, out, _ = run("validate", small, "--ranks", "3")
    assert code == 2
    assert "spec.training.promptsPerStep: 128 is not divisible by the data-parallel size 3" in out


def test_validate_takes_ranks_of_a_cluster_from_the_job(small: str) -> None:
    code, _, err = run("validate", small, "--cluster", "--ranks", "3")
    assert code == 2
    assert "nodes x hardware.ranksPerNode" in err


def test_train_is_handed_the_job_and_the_name(small: str, stand_in: Any) -> None:
    calls = stand_in("train", nothing)
    assert run("train", small, "--set", "training.steps=20", "--name", "mine") == (0, "", "")
    assert run("train", small, "--fresh")[0] == 0
    [(job, *rest), (_, *fresh)] = calls
    assert isinstance(job, RollplexJob)
    assert (job.spec.training.steps, rest, fresh) == (20, ["mine", False], [None, True])


def test_train_refuses_bad_jobs_on_stderr(small: str, stand_in: Any) -> None:
    calls = stand_in("train", nothing)
    code, out, err = run("train", small, "--set", "rollout.prefixFrom=actor", "--ranks", "2")
    assert (code, out) == (2, "")
    assert err.splitlines() == ['spec.rollout.prefixFrom: "actor": not yet; use engine', "--ranks: 2: not yet; use 1"]
    assert calls == []


@pytest.mark.parametrize("option", ["--random-weights=qwen2.5-vl-7b", "--response-tokens=200"])
def test_train_has_no_options_of_the_bench(small: str, option: str, stand_in: Any) -> None:
    stand_in("train", nothing)
    code, _, err = run("train", small, option)
    assert code == 2
    assert "No such option" in err


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (JobError.at("spec.data.train", "no such file"), 2, "spec.data.train: no such file\n"),
        (RunStopped("step 7: parity is 0.4"), 3, "step 7: parity is 0.4\n"),
        (StepFailed("step 7: the engine is silent"), 1, "step 7: the engine is silent\n"),
        (RunInterrupted(143, "saved after step 7 of 9"), 143, "saved after step 7 of 9\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_what_ends_a_run_has_its_exit_code(
    error: BaseException, code: int, message: str, small: str, stand_in: Any
) -> None:
    def end(*_: Any) -> None:
        raise error

    stand_in("train", end)
    assert run("train", small) == (code, "", message)


@pytest.mark.parametrize("fault", [ZeroDivisionError(), ConnectionResetError(104, "Connection reset by peer")])
def test_a_fault_of_ours_keeps_its_traceback(small: str, stand_in: Any, fault: Exception) -> None:
    def fail(*_: Any) -> None:
        raise fault

    stand_in("train", fail)
    with pytest.raises(type(fault)):
        run("train", small)


def test_a_file_that_cannot_be_used_is_a_line(small: str, stand_in: Any, tmp_path: Path) -> None:
    stand_in("bench", lambda *_: (tmp_path / "none/b.json").open("w"))
    assert run("bench", small) == (2, "", f"{tmp_path / 'none/b.json'}: No such file or directory\n")


def test_train_names_a_folder_that_takes_no_run_before_it_reads_anything(small: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, out, err = run("train", small, "--set", f"checkpoint.path={tmp_path / 'file/kept'}")
    assert (code, out) == (2, "")
    assert err.startswith(f"spec.checkpoint.path: {tmp_path / 'file/kept/run'} cannot be written: Not a directory; ")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("what", ["shapes", "model"])
def test_data_names_a_folder_that_cannot_be_written(what: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, _, err = run("data", what, "--out", str(tmp_path / "file/out"))
    assert code == 2
    assert err == f"--out: {tmp_path / 'file/out'} cannot be written: Not a directory; choose another folder\n"


def test_bench_is_handed_its_options(small: str, stand_in: Any) -> None:
    calls = stand_in("bench", nothing)
    options = ["--repeat=5", "--json=b.json", "--random-weights=qwen2.5-vl-3b", "--response-tokens=lognormal:200:0.5"]
    assert run("bench", small, *options)[0] == 0
    assert calls[0][1:] == (5, Path("b.json"), "qwen2.5-vl-3b", "lognormal:200:0.5")
    assert run("bench", small)[0] == 0
    assert calls[1][1:] == (3, None, None, None)


def test_show_is_handed_its_options_and_says_where_the_page_is(stand_in: Any) -> None:
    calls = stand_in("show", lambda *_: Path("runs/a/show-step-000003.html"))
    assert run("show", "a") == (0, "runs/a/show-step-000003.html\n", "")
    assert run("show", "a", "--step", "3", "--out", "b.html", "--prompts", "2")[0] == 0
    assert calls == [("a", None, None, 64), ("a", 3, Path("b.html"), 2)]


def test_data_shapes_renders_what_was_asked_for(tmp_path: Path) -> None:
    out = tmp_path / "set"
    assert run("data", "shapes", "--out", str(out), "--videos", "10", "--kinds", "colour, count", "--seed", "3")[0] == 0
    assert len(list((out / "videos").glob("*.mp4"))) == 10
    assert '"count"' in (out / "train.jsonl").read_text()


def test_data_shapes_names_the_kinds_it_knows(tmp_path: Path) -> None:
    code, _, err = run("data", "shapes", "--out", str(tmp_path), "--kinds", "smell")
    assert code == 2
    assert "choose from colour" in err


LIGHT = """
import sys
sys.argv = ["rollplex", "validate", sys.argv[1], "--cluster"]
from rollplex.cli import main
try:
    main()
except SystemExit as end:
    assert end.code == 0, end.code
heavy = {"torch", "vllm", "megatron", "transformers", "numpy", "av"} & set(sys.modules)
assert not heavy, heavy
"""


def test_validate_is_quick_and_imports_no_engine() -> None:
    # with byte code kept, as it usually is: the first try makes it
    usual = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    seconds: list[float] = []
    while len(seconds) < 12 and (not seconds or min(seconds) >= 0.5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-c", LIGHT, str(WHOLE)], check=True, capture_output=True, timeout=60, env=usual
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    # CPU time, and the best of a few: what another program takes from caches and clock is not the command's
    assert min(seconds) < 0.5
