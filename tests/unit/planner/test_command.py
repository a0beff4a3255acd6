"""``rollplex plan`` as a user calls it."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from rollplex.cli import app

JOB = {
    "apiVersion": "rollplex.io/v1alpha1",
    "kind": "RollplexJob",
    "metadata": {"name": "clevrer-32b"},
    "spec": {
        "model": {"path": "/nowhere/Qwen2.5-VL-32B-Instruct", "shape": "qwen2.5-vl-32b"},
        "data": {"train": "/data/train.parquet"},
        "reward": [{"name": "exact"}],
        "algorithm": {"kl": {"coefficient": 0.001}},
        "training": {"steps": 500, "promptsPerStep": 128, "microBatchTokens": 8192},
        "parallelism": {"train": {"tensor": 8}, "rollout": {"tensor": 4}},
        "precision": "bf16",
        "memory": {"budget": "76Gi"},
        "nodes": 4,
        "hardware": {"profile": "h800"},
    },
}
LENGTHS = ["--prompt-tokens", "2000", "--response-tokens", "200"]


@pytest.fixture
def job(tmp_path: Path) -> Any:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(JOB))
    return path


def call(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["plan", *map(str, arguments)])


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_plan_of_a_32b_on_eight_80_gb(job: Path, tmp_path: Path) -> None:
    result = call(job, *LENGTHS, "--json", tmp_path / "plan.json", "--png", tmp_path / "plan.png")
    assert result.exit_code == 0, result.output
    plan = read(tmp_path / "plan.json")
    memory, weights, step = plan["memory"], plan["weights"], plan["step"]
    assert memory["naive_bytes"] == pytest.approx(165 * 2**30, rel=0.05)
    assert memory["naive_bytes"] == sum(memory["naive"].values())
    assert memory["planned_bytes"] <= memory["budget_bytes"] == 76 << 30
    assert memory["planned_bytes"] == max(memory["phase_bytes"])
    assert set(memory["classes"]) == {"boundary", "permanent", "snapshot", "phase-local"}
    assert [round(100 * share, 1) for share in weights["shares"].values()] == [60.1, 32.8, 7.2]
    assert round(weights["copied_bytes"] / 2**30, 1) == 1.1
    assert round(weights["full_copy_bytes"] / 2**30, 1) == 7.6
    for mode in ("serial", "overlap", "stream"):
        assert set(step[mode]) == {"seconds", "hidden_seconds", "saved_seconds", "exposed_seconds"}
    assert step["per-sample"]["seconds"] > step["serial"]["seconds"]
    assert step["disaggregated"]["rollout_ranks"] == 16
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    for words in ("it fits", "engine KV", "60.1% aliased", "disaggregated, 16 for rollout"):
        assert words in result.output


def test_what_does_not_fit_says_by_how_much_and_what_to_change(job: Path, tmp_path: Path) -> None:
    result = call(job, *LENGTHS, "--set", "memory.budget=60Gi", "--json", tmp_path / "plan.json")
    assert result.exit_code == 0, result.output
    plan = read(tmp_path / "plan.json")
    assert not plan["memory"]["fits"]
    assert "it does not fit: " in result.output
    changes = plan["changes"]
    assert len(changes) == 3
    assert changes[0]["fits"]
    assert str(changes[0]["change"]) in result.output
    # what it promises holds
    field, _, value = changes[0]["change"].partition(": ")
    again = call(
        job, *LENGTHS, "--set", "memory.budget=60Gi", "--set", f"{field}={value}", "--json", tmp_path / "b.json"
    )
    assert again.exit_code == 0, again.output
    assert read(tmp_path / "b.json")["memory"]["fits"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--gpu", "h900"], "--gpu: 'h900' is not known; choose from h800, h100, h200, b200, cpu"),
        (["--gpu", "-3"], "--gpu"),
        (["--hardware", "missing.json"], "write it with rollplex calibrate"),
        (["--prompt-tokens", "9000"], "--prompt-tokens: 9000 is not within 1 and spec.data.maxPromptTokens (8192)"),
        (["--response-tokens", "0"], "--response-tokens: 0 is not within 1 and spec.rollout.maxTokens (512)"),
        (["--sweep", "speed=1"], "write PARAMETER=VALUE,VALUE with one of prompt-tokens"),
        (["--sweep", "group-size=1.5"], "1.5 must be a whole number above 0"),
        (["--sweep", "group-size=x"], "values are numbers"),
        (["--ranks", "12"], "spec.parallelism.train.tensor"),
        (["--set", "model.shape=null"], "set model.shape to one of"),
        (["--set", "hardware.profile=generic"], "name one (h800, h100, h200, b200)"),
    ],
)
def test_bad_options_are_named(job: Path, arguments: list[str], says: str) -> None:
    result = call(job, *arguments)
    assert result.exit_code == 2
    assert says in result.stderr


def test_measured_figures_replace_the_profiles(job: Path, tmp_path: Path) -> None:
    measured = tmp_path / "measured.json"
    measured.write_text(json.dumps({"hardware": {"host_rate": 20e9}}))
    call(job, *LENGTHS, "--json", tmp_path / "a.json")
    result = call(job, *LENGTHS, "--hardware", measured, "--json", tmp_path / "b.json")
    assert result.exit_code == 0, result.output
    before, after = read(tmp_path / "a.json"), read(tmp_path / "b.json")
    assert after["hardware"]["host_rate"] == 20e9
    assert after["step"]["serial"]["seconds"] > before["step"]["serial"]["seconds"]
    measured.write_text(json.dumps({"hardware": {"host_rate": "fast"}}))
    assert "host_rate is 'fast'; it must be a number above 0" in call(job, "--hardware", measured).stderr
    measured.write_text(json.dumps({"hardware": {"gpu_rate": 3}}))
    assert "gpu_rate is no figure" in call(job, "--hardware", measured).stderr


@pytest.mark.parametrize(
    "parameter",
    ["prompt-tokens=470,5900", "group-size=4,16", "train-tensor=4,3", "rollout-tensor=2,8", "host-rate=10,64",
     "far-factor=0.3,1", "decode-speed=1,4"],
)  # fmt: skip
def test_sweeps_have_a_row_for_each_value(job: Path, tmp_path: Path, parameter: str) -> None:
    result = call(job, *LENGTHS, "--sweep", parameter, "--json", tmp_path / "s.json", "--png", tmp_path / "s.png")
    assert result.exit_code == 0, result.output
    rows = read(tmp_path / "s.json")
    assert all("stream" in row["step"] for row in rows)
    if parameter.startswith("train-tensor"):
        assert [row["value"] for row in rows] == [4]
        assert "3: spec.parallelism.train.tensor: 3 does not divide" in result.output
    else:
        assert len(rows) == 2
        assert rows[0]["step"] != rows[1]["step"]
    assert (tmp_path / "s.png").read_bytes().startswith(b"\x89PNG")


def test_plan_loads_no_torch_and_takes_two_seconds_of_a_cpu(job: Path) -> None:
    code = (
        "import sys, time; sys.argv = ['rollplex', 'plan', *sys.argv[1:]]; from rollplex.cli import main\n"
        "try: main()\nexcept SystemExit as e: assert not e.code, e.code\n"
        "assert 'torch' not in sys.modules; print('cpu', time.process_time())"
    )
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code, job, *LENGTHS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.rpartition("cpu ")[2]) < 2.0, f"{time.monotonic() - start:.1f} s in all"
