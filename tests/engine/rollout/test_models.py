"""Engines of their own for other models: tied embeddings, bf16."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from rollplex.rollout.engine import RolloutEngine
from rollplex.rollout.protocol import Sampling
from rollplex.weights.hf import fuse_gate_up
from rollplex.weights.share import share_weights
from tests.engine.rollout.helpers import run, worst_difference
from tests.engine.tiny import (
    MODEL_TYPES,
    hf_logprobs,
    hf_twin,
    make_folder,
    medium,
    prompt,
    random_policy,
    text,
    tiny_shape,
)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_tied_embeddings_stay_one_memory(tmp_path: Path, model_type: str) -> None:
    shape = tiny_shape(tied=True, model_type=model_type)
    folder = make_folder(tmp_path, shape)
    # newer vLLM unties a model whose folder also stores the matrix, and compares the two after loading
    save_file({"lm_head.weight": torch.zeros(shape.vocabulary, shape.hidden)}, folder / "model.safetensors")
    policy = random_policy(shape)
    weights = share_weights(policy.language, policy.visual)
    assert weights.report()["alias"] + weights.report()["copy"] == sum(p.nbytes for p in policy.parameters())
    engine = RolloutEngine(folder, weights, max_model_len=250, max_num_seqs=4, kv_cache_bytes=1)
    try:
        prompts = [prompt("text", shape, [text(20, 1)])]
        engine.publish()
        assert worst_difference(policy, prompts, run(engine, prompts, 2)) <= 1e-4
        engine.retire()
        with torch.no_grad():
            policy.get_parameter("language.embedding.word_embeddings.weight").mul_(1.5)
        engine.publish()
        assert worst_difference(policy, prompts, run(engine, prompts, 2)) <= 1e-4
    finally:
        engine.close()
        engine.close()
    assert torch.distributed.is_initialized(), "the process groups are the trainer's too"


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_bf16_parity(tmp_path: Path, model_type: str) -> None:
    """The bound of DESIGN's invariant 4 in bf16: 0.02 nats in the mean, against fp32 arithmetic on the same weights."""
    shape = tiny_shape(model_type=model_type)
    folder = make_folder(tmp_path, shape)
    policy = random_policy(shape).to(torch.bfloat16)
    fuse_gate_up(policy.visual)  # .to() has given each half its own memory
    weights = share_weights(policy.language, policy.visual)
    engine = RolloutEngine(folder, weights, dtype=torch.bfloat16, max_model_len=256, max_num_seqs=8, kv_cache_bytes=1)
    try:
        engine.publish()
        video = medium("video", (4, 8, 8), 3, shape, seconds=0.5)
        prompts = [prompt("text", shape, [text(60, 1)]), prompt("video", shape, [video, text(6, 1)])]
        responses = run(engine, prompts, 4, Sampling(max_tokens=20))
        twin = hf_twin(policy)
        off = [hf_logprobs(twin, prompts[r.prompt], r.token_ids, 1.0) - torch.tensor(r.logprobs) for r in responses]
        assert 1e-4 < torch.cat(off).abs().mean() <= 0.02
    finally:
        engine.close()
