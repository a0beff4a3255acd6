"""A vision-language policy: encode media, run prefixes, score packed suffixes.

Actor and reference are two instances of the same class; the reference's parameters take no gradients.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import torch
from torch import nn

from rollplex.api.shapes import ModelShape, shape_from_folder
from rollplex.batch import Media, Prompt
from rollplex.policy import vision
from rollplex.policy.cut import Boundary, Features
from rollplex.policy.language import build_language
from rollplex.policy.logprobs import token_logprobs
from rollplex.policy.pack import Pack
from rollplex.policy.passes import Visual, embed, output_logits, prefix_pass, suffix_pass, visual_rows
from rollplex.policy.rope import rope_angles
from rollplex.weights.hf import fuse_gate_up, load_folder

FREEZABLE = ("vision", "projector", "language")
_PROJECTORS = (".merger.", ".deepstack_merger_list.")


class Policy(nn.Module):
    """A supported model as Megatron-Core language model and transformers vision tower.

    ``recompute``: drop activations inside layers and run them again in the backward (non-reentrant checkpointing).
    """

    def __init__(
        self, shape: ModelShape, dtype: torch.dtype = torch.float32, recompute: bool = False, device: str = "cpu"
    ) -> None:
        super().__init__()
        self.shape = shape
        self.recompute = recompute
        self.language = build_language(shape, dtype).to(device)
        self.visual = vision.build_vision(shape, dtype).to(device)
        fuse_gate_up(self.visual)  # last: moving a module parts what lies side by side

    @property
    def device(self) -> torch.device:
        return self.language.embedding.word_embeddings.weight.device  # type: ignore[no-any-return]

    def freeze(self, parts: Collection[str]) -> None:
        """Stop gradients into ``vision`` (the tower), ``projector`` (its mergers) or ``language``."""
        for part in parts:
            if part not in FREEZABLE:
                raise ValueError(f"model.freeze: {part!r} matches no module; choose from {', '.join(FREEZABLE)}")
        for name, parameter in self.named_parameters():
            root = name.split(".")[0]
            projects = any(mark in name for mark in _PROJECTORS)
            part = "language" if root == "language" else "projector" if projects else "vision"
            if part in parts:
                parameter.requires_grad_(False)

    def encode(self, media: Media) -> Features:
        """Vision features of one medium; the graph is kept where the tower or projector is trainable."""
        return Features(vision.encode(self.visual, media, self.device))

    def prefix(self, prompt: Prompt, features: Sequence[Features]) -> Boundary | None:
        """Boundary KV of a prompt without its last token; None for a one-token prompt.

        ``features`` belong to ``prompt.media``, in order.
        """
        length = len(prompt.token_ids) - 1
        if length == 0:
            return None
        token_ids = torch.tensor(prompt.token_ids[:-1], device=self.device)
        visual = self._visual(prompt, features)
        hidden = embed(self.language, token_ids, visual)
        angles = self._angles(prompt.positions[:, :-1])
        return Boundary(prefix_pass(self.language, hidden, angles, self.recompute, visual))

    def score(
        self,
        pack: Pack,
        boundaries: Mapping[int, Boundary],
        features: Mapping[tuple[int, int], Features],
        temperature: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log probabilities and entropies, both [M] float32, of the pack's response tokens.

        Args:
            boundaries: by group, for ``pack.groups``.
            features: by (group, medium), for ``pack.media_rows`` (prompts that were not split).
            temperature: of the policy softmax(logits / T).
        """
        visual = visual_rows([(rows, features[group, medium].leaves) for group, medium, rows in pack.media_rows])
        hidden = embed(self.language, pack.token_ids, visual)
        read = [boundaries[group] for group in pack.groups]
        angles = self._angles(pack.positions)
        hidden = suffix_pass(self.language, hidden, angles, pack.segments, read, self.recompute, visual)
        logits = output_logits(self.language, hidden[pack.target_rows])
        return token_logprobs(logits, pack.targets, temperature)

    def _angles(self, positions: torch.Tensor) -> torch.Tensor:
        shape = self.shape
        interleaved = shape.family.interleaved_rope
        return rope_angles(
            positions.to(self.device), shape.head_dim, shape.rope_theta, shape.mrope_section, interleaved
        )

    def _visual(self, prompt: Prompt, features: Sequence[Features]) -> Visual | None:
        if len(features) != len(prompt.media):
            raise ValueError(f"prompt {prompt.id!r} has {len(prompt.media)} media, but {len(features)} features came")
        for starts, media, item in zip(prompt.media_starts, prompt.media, features, strict=True):
            expected = media.tokens(self.shape.vision.merge)
            if item.tensor.size(0) != expected:
                raise ValueError(
                    f"prompt {prompt.id!r}: medium at token {starts[0]} has {expected} placeholders, "
                    f"but the tower gave {item.tensor.size(0)} features"
                )
        return visual_rows([(starts, item.leaves) for starts, item in zip(prompt.media_starts, features, strict=True)])


def load_policy(
    folder: str | Path, dtype: torch.dtype = torch.float32, recompute: bool = False, device: str = "cpu"
) -> Policy:
    """Build the policy of a Hugging Face folder on a device and read its weights, tensor by tensor."""
    policy = Policy(shape_from_folder(folder), dtype, recompute, device)
    load_folder(policy.language, policy.visual, policy.shape, folder)
    return policy
