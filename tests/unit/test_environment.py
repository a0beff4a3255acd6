"""What the command line sets before engines are imported, and which of their notes it leaves out."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings

import pytest

from rollplex.environment import set_defaults

APEX = "Apex is not installed. Falling back to Torch Norm"


def test_variables_of_the_user_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    set_defaults()
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert os.environ["HF_HUB_OFFLINE"] == "1"


def test_defaults_import_no_engine() -> None:
    program = (
        "import sys; from rollplex.environment import set_defaults; set_defaults(); "
        "print(sorted({'torch', 'vllm', 'megatron', 'transformers', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("message", "category", "module", "shown"),
    [
        (APEX, UserWarning, "megatron.core.models.backends", False),
        ("torch.distributed.reduce_op is deprecated", FutureWarning, "vllm.triton_utils.dispatcher", False),
        (APEX, UserWarning, "rollplex.policy.language", True),
        (APEX, UserWarning, "megatron_helpers", True),
        ("overflow", RuntimeWarning, "megatron.core.optimizer.clip_grads", True),
        ("it is deprecated", FutureWarning, "rewards", True),
        ("the engine is out of memory", UserWarning, "vllm.triton_utils.dispatcher", True),
    ],
)
def test_only_known_notes_are_left_out(message: str, category: type[Warning], module: str, shown: bool) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        set_defaults()
        warnings.warn_explicit(message, category, f"{module}.py", 1, module)
    assert bool(caught) == shown
