"""Calibration: figures that a plan takes."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from rollplex import calibrate
from rollplex.planner.hardware import hardware_of


@pytest.fixture(scope="module")
def measured() -> Any:
    device = calibrate.Device("cpu")
    device.side, device.copy_bytes = 64, 1 << 16  # the figures are a toy's, their form is not
    said: list[str] = []
    return calibrate.measure(device, said.append), said


def test_a_plan_takes_the_figures(measured: tuple[dict[str, Any], list[str]], tmp_path: Path) -> None:
    path = tmp_path / "measured.json"
    path.write_text(json.dumps(measured[0]))
    found = hardware_of("cpu", measured=path)
    assert found.flops == measured[0]["hardware"]["flops"] > 0
    assert 0 < found.decode_share <= 1
    assert 0 < found.decode_efficiency <= 1
    assert found.name == "cpu, measured"


def test_raw_figures_say_how_they_were_come_by(measured: tuple[dict[str, Any], list[str]]) -> None:
    result, said = measured
    assert list(result["measured"]["decode_bytes_per_second_by_batch"]) == list(calibrate.BATCHES)
    assert {"to_host", "to_device", "each_way_at_once"} <= set(result["measured"]["host_bytes_per_second"]["near"])
    assert result["card"]
    assert result["date"]
    assert len(said) == 5  # long work shows progress


def test_cpu_lists_of_the_kernel_are_read() -> None:
    assert calibrate._cpu_list("0-3,8\n") == {0, 1, 2, 3, 8}
    assert calibrate._cpu_list("\n") == set()


def test_gradients_are_on_as_before_afterwards(measured: tuple[dict[str, Any], list[str]]) -> None:
    assert torch.is_grad_enabled()


def test_affinity_is_as_before_afterwards(measured: tuple[dict[str, Any], list[str]]) -> None:
    before = os.sched_getaffinity(0)
    with calibrate._on({min(before)}):
        assert os.sched_getaffinity(0) == {min(before)}
    assert os.sched_getaffinity(0) == before
