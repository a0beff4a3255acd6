"""A model whose output matrix is its embedding: one memory for three names."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file

from rollplex.rollout.engine import RolloutEngine
from rollplex.weights.share import share_weights
from tests.engine.rollout.helpers import run, worst_difference
from tests.engine.tiny import make_folder, prompt, random_policy, text, tiny_shape


def test_tied_embeddings_stay_one_memory(tmp_path: Path) -> None:
    shape = tiny_shape(tied=True)
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
