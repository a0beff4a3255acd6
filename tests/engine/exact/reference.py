"""The reference of everything exact: one full-sequence pass per sample through transformers' own model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rollplex.algorithms.grpo import group_advantages
from rollplex.batch import Prompt, Response


@dataclass
class Reference:
    """Loss, per-token log probabilities by (group, sample), and the gradient of every parameter by its HF name."""

    loss: float
    logprobs: dict[tuple[int, int], torch.Tensor]
    gradients: dict[str, torch.Tensor]


def full_pass_logprobs(model: Any, prompt: Prompt, response: Sequence[int], temperature: float) -> torch.Tensor:
    """Log probabilities [R] of a response by transformers' own forward, with gradient, in the model's dtype."""
    ids = torch.tensor([[*prompt.token_ids, *response]])
    following = torch.arange(prompt.next_position, prompt.next_position + len(response)).expand(3, -1)
    inputs: dict[str, torch.Tensor] = {}
    for kind, pixels, grid in (
        ("image", "pixel_values", "image_grid_thw"),
        ("video", "pixel_values_videos", "video_grid_thw"),
    ):
        media = [item for item in prompt.media if item.kind == kind]
        if media:
            inputs[pixels] = torch.cat([item.patches for item in media]).to(model.dtype)
            inputs[grid] = torch.tensor([item.grid for item in media])
    out = model(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        position_ids=torch.cat([prompt.positions, following], dim=1)[:, None],
        use_cache=False,
        **inputs,
    )
    logits = out.logits[0, len(prompt.token_ids) - 1 : -1] / temperature
    chosen: torch.Tensor = logits.log_softmax(-1).gather(-1, torch.tensor(response)[:, None])[:, 0]
    return chosen


def grpo_by_hand(
    model: Any,
    initial: Any,
    prompts: Sequence[Prompt],
    responses: dict[tuple[int, int], Response],
    rewards: Sequence[Sequence[float]],
    *,
    normalization: str,
    kl: float,
    temperature: float = 1.0,
) -> Reference:
    """GRPO's loss and gradient, sample by sample; written from the formula, not from the product's code."""
    model.zero_grad(set_to_none=True)
    dtype = next(model.parameters()).dtype
    total_tokens = sum(len(r.token_ids) for r in responses.values())
    loss_sum = torch.zeros((), dtype=dtype)
    logprobs: dict[tuple[int, int], torch.Tensor] = {}
    for (group, sample), response in responses.items():
        tokens = response.token_ids
        if not tokens:
            continue
        logp = full_pass_logprobs(model, prompts[group], tokens, temperature)
        advantage = group_advantages(rewards[group])[sample]
        loss = -(torch.exp(logp - logp.detach()) * advantage)
        if kl:
            with torch.no_grad():
                reference = full_pass_logprobs(initial, prompts[group], tokens, temperature)
            difference = reference - logp
            loss = loss + kl * (torch.exp(difference) - difference - 1)
        scaled = loss.sum() / total_tokens if normalization == "token" else loss.mean() / len(responses)
        scaled.backward()
        loss_sum += scaled.detach()
        logprobs[group, sample] = logp.detach()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    missing = [name for name, gradient in gradients.items() if gradient is None]
    assert not missing, f"the reference left parameters without a gradient: {missing}"
    return Reference(float(loss_sum), logprobs, gradients)


def relative_errors(ours: dict[str, torch.Tensor], reference: dict[str, torch.Tensor]) -> dict[str, float]:
    """||g - g_ref|| / ||g_ref|| by parameter; both must cover the same names."""
    assert ours.keys() == reference.keys(), f"parameters differ: {sorted(ours.keys() ^ reference.keys())[:5]}"
    return {
        name: float((ours[name].double() - exact.double()).norm() / exact.double().norm())
        for name, exact in reference.items()
    }
