"""What the process environment must hold before torch, vLLM or Megatron-Core are imported.

Everything here is a default: a variable that the user has set is left alone. All functions may be called any number
of times, from any room, and cost nothing after the first call.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Any

_EVERYWHERE = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine lives in this process: it reads the trainer's own memory
    "VLLM_USE_V2_MODEL_RUNNER": "0",  # one model runner in all supported versions
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # What nobody who runs a job can act on. Here because it is read at import, and below for what has no variable.
    "TRANSFORMERS_VERBOSITY": "error",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",  # also transformers' bars for loading and saving weights
    "TORCH_CPP_LOG_LEVEL": "ERROR",  # "NUMA binding: Using MEMBIND policy"
    # float32 means float32: with tf32 in attention kernels (Triton) or convolutions, rollout and trainer part by 3e-4
    "TRITON_F32_DEFAULT": "ieee",
    "NVIDIA_TF32_OVERRIDE": "0",
}
_ON_CPU = {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # binding would pin the compute lane's thread to the engine's core
    "TORCHDYNAMO_DISABLE": "1",
    "OMP_NUM_THREADS": "1",  # lanes are threads; a matmul that takes every core leaves none for the other lane
}

_NOTES: tuple[tuple[type[Warning], str], ...] = (
    (UserWarning, r"megatron\."),  # "Apex is not installed", "Transformer Engine is not installed", their own settings
    (DeprecationWarning, r"megatron\."),
    (FutureWarning, r"vllm\.triton_utils"),  # looks at every attribute of torch.distributed, deprecated ones too
)

_library: Any = None  # torch drops the operators when the Library object dies


def on_cpu() -> bool:
    """Whether the installed vLLM is the CPU build (decided without importing torch)."""
    try:
        return "cpu" in importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        pass
    try:
        return bool(importlib.metadata.version("vllm-cpu"))
    except importlib.metadata.PackageNotFoundError:
        return False


def set_defaults() -> None:
    """Set the defaults above; call before torch is imported (it reads some of them then). Imports nothing itself."""
    defaults = _EVERYWHERE | (_ON_CPU if on_cpu() else {})
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
    _quieten()


def prepare() -> None:
    """Set the defaults above and make torchvision importable; call before importing vLLM or Megatron-Core."""
    set_defaults()
    torch = sys.modules.get("torch")
    if torch is not None and on_cpu():
        # OpenMP reads its variable when torch is loaded: too late here, so say it to torch
        threads = int(os.environ["OMP_NUM_THREADS"])
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
    prepare_torchvision()


def _quieten() -> None:
    """Leave out what these libraries tell their own maintainers. Only where they warn themselves, and only so."""
    if not sys.warnoptions:  # python -W and PYTHONWARNINGS go first
        for category, module in _NOTES:
            warnings.filterwarnings("ignore", category=category, module=module)
    logging.getLogger("torch._library.triton").setLevel(logging.ERROR)  # "Triton not available"


def prepare_torchvision() -> None:
    """Let ``import torchvision`` work where its C++ library does not load beside a CPU build of torch.

    torchvision registers fake kernels for operators that only that library defines, and its import fails without them.
    Defining an operator twice aborts the process, so the library is tried first and only what is missing is defined.
    """
    global _library
    if _library is not None or "torchvision" in sys.modules:
        return
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return
    import torch

    for library in Path(spec.origin).parent.glob("_C*.so"):
        try:
            torch.ops.load_library(str(library))
        except OSError:
            continue
    missing = [name for name in ("nms", "qnms") if not hasattr(torch.ops.torchvision, name)]
    if missing and torch.version.cuda is None:
        _library = torch.library.Library("torchvision", "FRAGMENT")
        for name in missing:
            _library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
