import os
import subprocess
import sys

import pytest

from rollplex import environment


def test_users_settings_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"HF_HUB_OFFLINE": "0", "OMP_NUM_THREADS": "2"})
    environment.prepare()
    assert os.environ["HF_HUB_OFFLINE"] == "0"
    assert os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"


@pytest.mark.parametrize("cpu", [True, False])
def test_threads_and_compiler_are_limited_on_cpu_only(monkeypatch: pytest.MonkeyPatch, cpu: bool) -> None:
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.setattr(environment, "on_cpu", lambda: cpu)
    environment.prepare()
    limited = {"OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    assert {name: os.environ.get(name) for name in limited} == (limited if cpu else dict.fromkeys(limited))


def test_torchvision_imports_after_any_number_of_calls() -> None:
    """In a process of its own: defining an operator twice aborts it."""
    code = (
        "from rollplex.environment import prepare, prepare_torchvision as vision; import torch; "
        "vision(); prepare(); vision(); import torchvision; prepare(); torch.ops.torchvision.nms"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
