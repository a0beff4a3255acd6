"""vLLM's engine and its sampling parameters, set up to be the trainer's policy and nothing else."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from vllm import EngineArgs, SamplingParams
from vllm.config import WeightTransferConfig
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.llm_engine import LLMEngine

from rollplex.api.shapes import shape_from_folder
from rollplex.environment import on_cpu
from rollplex.rollout import loader
from rollplex.rollout.compat import keep_process_groups
from rollplex.rollout.protocol import Sampling
from rollplex.weights import transfer
from rollplex.weights.share import RolloutWeights

_DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
# tokens of a prefix-cache block; vLLM's 128 on CPU would prefill shorter prompts once per sample
_CPU_BLOCK = 32
_GPU_BLOCK = 16
_LEAST_SHARE = 0.01


def build_engine(
    folder: str | Path,
    weights: RolloutWeights,
    *,
    dtype: torch.dtype,
    max_model_len: int,
    max_num_seqs: int,
    kv_cache_bytes: int,
    seed: int,
) -> Any:
    """An LLMEngine in this process on ``weights``; arguments as for :class:`rollplex.rollout.engine.RolloutEngine`."""
    loader.register()
    transfer.register()
    handle = transfer.offer(weights)
    block = _CPU_BLOCK if on_cpu() else _GPU_BLOCK
    arguments: dict[str, Any] = {
        "model": str(folder),
        "dtype": _DTYPES[dtype],
        "seed": seed,
        "load_format": loader.LOAD_FORMAT,
        "model_loader_extra_config": {"handle": handle},
        "weight_transfer_config": WeightTransferConfig(backend=transfer.BACKEND),
        "generation_config": "vllm",
        "logprobs_mode": "processed_logprobs",
        "enable_prefix_caching": True,
        "max_model_len": max_model_len,
        "max_num_seqs": max_num_seqs,
        # any one prompt can be prefilled in one piece, and no medium in it is too large for the encoder's cache
        "max_num_batched_tokens": max(2048, max_model_len, max_num_seqs),
        "block_size": block,
        "kv_cache_memory_bytes": max(kv_cache_bytes, _least_kv_bytes(folder, dtype, max_model_len, block)),
        "skip_mm_profiling": True,  # the KV size is given: nothing depends on a profile
        "mm_processor_cache_gb": 0,  # nothing is processed
        "async_scheduling": False,  # what a step returns was computed in that step
        "disable_log_stats": True,
    }
    if on_cpu():
        # a seeded request that has read part of its prompt asks its generator for an offset; CPU generators have none
        arguments |= {"enforce_eager": True, "enable_chunked_prefill": False}
    else:
        # the trainer holds most of the card already; the KV size is given, so this share only bounds a check at start
        arguments |= {"gpu_memory_utilization": _LEAST_SHARE}
        arguments |= {"compilation_config": {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}}
    engine = LLMEngine.from_engine_args(EngineArgs(**arguments))
    keep_process_groups(engine)
    engine.collective_rpc("init_weight_transfer_engine", kwargs={"init_info": {"handle": handle}})
    return engine


def _least_kv_bytes(folder: str | Path, dtype: torch.dtype, max_model_len: int, block: int) -> int:
    """Whole blocks for one longest sequence, and one more that vLLM keeps empty; with less it refuses to start."""
    shape = shape_from_folder(folder)
    blocks = math.ceil(max_model_len / block) + 1
    return blocks * block * 2 * shape.layers * shape.kv_heads * shape.head_dim * dtype.itemsize


def sampling_params(sampling: Sampling, limit: int, seed: int) -> Any:
    """Parameters of one request: the whole vocabulary at a temperature, stops as given, deltas out."""
    return SamplingParams(
        temperature=0.0 if sampling.greedy else sampling.temperature,  # 0.0 is vLLM's word for greedy
        top_p=1.0,
        top_k=0,
        min_p=0.0,
        seed=seed,
        max_tokens=limit,
        stop_token_ids=[] if sampling.exact else list(sampling.stop_token_ids),
        stop=[] if sampling.exact else list(sampling.stop),
        ignore_eos=True,  # the folder's end-of-text id stops only where the job says so
        logprobs=0,  # of the sampled token only
        # token by token the engine makes text only where a stop string must be found in it
        detokenize=bool(sampling.stop) and not sampling.exact,
        skip_special_tokens=False,
        output_kind=RequestOutputKind.DELTA,
    )
