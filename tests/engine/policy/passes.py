"""Split passes by hand: encode, prefix, score, and the backward over the cuts; no step around them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rollplex.batch import Prompt
from rollplex.memory.gradients import Gradients
from rollplex.policy.cut import Boundary, Features
from rollplex.policy.pack import Member, PackGroup, build_pack
from rollplex.policy.policy import Policy
from tests.engine.exact.harness import gradients_by_hf_name

Scored = dict[tuple[int, int], torch.Tensor]  # (group, sample) -> log probabilities [R]


def group_of(number: int, prompt: Prompt, *responses: Sequence[int], split: bool = True) -> PackGroup:
    return PackGroup(number, prompt, tuple(Member(i, tuple(ids)) for i, ids in enumerate(responses)), split)


class SplitPass:
    """Prefixes of groups and one packed pass over their responses."""

    def __init__(
        self, policy: Policy, groups: Sequence[PackGroup], *, temperature: float = 1.0, pad_to: int = 1
    ) -> None:
        self.features: dict[int, list[Features]] = {}
        self.boundaries: dict[int, Boundary] = {}
        for group in groups:
            self.features[group.group] = [policy.encode(media) for media in group.prompt.media]
            if group.split:
                boundary = policy.prefix(group.prompt, self.features[group.group])
                if boundary is not None:
                    self.boundaries[group.group] = boundary
        pack = build_pack(groups, policy.device, pad_to)
        assert pack is not None
        self.pack = pack
        by_medium = {(g, m): item for g, held in self.features.items() for m, item in enumerate(held)}
        self.logp, self.entropy = policy.score(pack, self.boundaries, by_medium, temperature)

    @property
    def scored(self) -> Scored:
        return {(group, sample): self.logp[tokens] for group, sample, tokens in self.pack.owners}

    def backward(self, loss: torch.Tensor) -> None:
        """From a loss over ``logp`` into the parameters, cut by cut."""
        features = [item for held in self.features.values() for item in held]
        loss.backward()
        for cut in [*self.boundaries.values(), *features]:
            cut.absorb()
        for boundary in self.boundaries.values():
            boundary.backward()
        for item in features:
            item.absorb()
            item.backward()


@torch.no_grad()
def score(policy: Policy, *groups: PackGroup, temperature: float = 1.0, pad_to: int = 1) -> Scored:
    return SplitPass(policy, groups, temperature=temperature, pad_to=pad_to).scored


def weighed(logp: torch.Tensor) -> torch.Tensor:
    """A loss in which every token counts differently."""
    return (logp * torch.linspace(0.5, 2.0, logp.numel())).sum()


def gradients_of(
    policy: Policy, groups: Sequence[PackGroup], *, pad_to: int = 1
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Loss and its gradients by HF names."""
    sums = Gradients(policy.named_parameters())
    try:
        passed = SplitPass(policy, groups, pad_to=pad_to)
        loss = weighed(passed.logp)
        passed.backward(loss)
    finally:
        sums.close()
    return loss.detach(), gradients_by_hf_name(policy, dict(sums.items()))
