"""A Qwen2.5-VL or Qwen3-VL of 0.7 M parameters, its folder without weights, and prompts over random pixels.

The folder holds config, tokenizer and processor only: an engine that tried to read weights from disk would fail.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoConfig,
    AutoModelForImageTextToText,
    PreTrainedTokenizerFast,
    Qwen2_5_VLProcessor,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

from rollplex.api.families import FAMILIES
from rollplex.api.shapes import ModelShape, VisionShape, config_of_shape
from rollplex.batch import Media, Prompt
from rollplex.policy.policy import Policy
from rollplex.positions import rope_positions
from rollplex.weights.hf import hf_views

SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
WORDS = ["What colour is the moving cube?", "the red sphere collides with the blue cylinder", "answer: yes no"]


# By model type, what its tiny model has of its own. Qwen2.5-VL: windows smaller than a frame. Qwen3-VL: features of
# deepstack behind two of three layers, heads of 32 although 128 / 8 is 16, a position grid that is resampled.
OWN: dict[str, dict[str, Any]] = {
    "qwen2_5_vl": {
        "layers": 2,
        "heads": 4,
        "vision": VisionShape(2, 64, 2, 128, full_attention_blocks=(1,), window=56),
        "mrope_section": (4, 6, 6),
    },
    "qwen3_vl": {
        "layers": 3,
        "heads": 8,
        "vision": VisionShape(3, 64, 2, 128, deepstack_blocks=(0, 1), position_grid=36, patch=16),
        "mrope_section": (6, 5, 5),
        "head_size": 32,
    },
}
MODEL_TYPES = tuple(FAMILIES)


def tiny_shape(tied: bool = False, model_type: str = "qwen2_5_vl") -> ModelShape:
    """A vocabulary that vLLM must pad (500 is no multiple of 64), and GQA."""
    return ModelShape(
        name="tiny",
        hidden=128,
        ffn=256,
        kv_heads=2,
        vocabulary=500,
        model_type=model_type,
        tied_embeddings=tied,
        max_positions=2048,
        image_token=498,
        video_token=499,
        vision_start_token=496,
        vision_end_token=497,
        eos_tokens=(495, 493),
        **OWN[model_type],
    )


def make_folder(out: Path, shape: ModelShape) -> Path:
    """config.json, tokenizer and processor of a shape."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(config_of_shape(shape)))
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator(
        WORDS * 20, trainers.BpeTrainer(vocab_size=493, initial_alphabet=alphabet, show_progress=False)
    )
    filler = [f"<|filler_{i}|>" for i in range(493 - bpe.get_vocab_size())]
    bpe.add_special_tokens([*filler, *SPECIAL])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    size = {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 64}
    image = Qwen2VLImageProcessor(size=size, patch_size=shape.vision.patch)
    video: Any
    if shape.family.time_as_text:
        video = Qwen3VLVideoProcessor(size=size, do_sample_frames=False, cap_pixels_per_frame=False)
        Qwen3VLProcessor(image, tokenizer, video).save_pretrained(out)
    else:
        video = Qwen2VLVideoProcessor(size=size, do_sample_frames=False)
        Qwen2_5_VLProcessor(image, tokenizer, video).save_pretrained(out)
    return out


@torch.no_grad()
def random_policy(shape: ModelShape, seed: int = 0) -> Policy:
    """Random weights, spread widely enough that the distribution over tokens is far from uniform."""
    policy = Policy(shape)
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in policy.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() > 1:
            parameter.copy_(noise * 0.08)
        else:
            parameter.copy_(noise * 0.05 + (0.0 if name.endswith("bias") else 1.0))
    return policy


@torch.no_grad()
def hf_twin(policy: Policy) -> Any:
    """transformers' model with a copy of the policy's present weights."""
    model = AutoModelForImageTextToText.from_config(AutoConfig.for_model(**config_of_shape(policy.shape))).eval()
    views = hf_views(dict(policy.language.named_parameters()), dict(policy.visual.named_parameters()), policy.shape)
    state = model.state_dict()
    for name, view in views.items():
        state[name].copy_(view.tensor())
    return model


def medium(kind: str, grid: tuple[int, int, int], seed: int, shape: ModelShape, seconds: float = 0.0) -> Media:
    """Random pixels of a grid."""
    t, h, w = grid
    generator = torch.Generator().manual_seed(seed)
    patches = torch.randn(t * h * w, shape.vision.patch_dim, generator=generator)
    return Media(kind, patches, grid, seconds)  # type: ignore[arg-type]


def prompt(name: str, shape: ModelShape, parts: Sequence[Sequence[int] | Media], answer: str | None = None) -> Prompt:
    """A prompt of token runs and media in order; each medium sits between its two markers.

    Where the family has time as text, every row of a video sits between two more, behind a few tokens that stand for
    its time.
    """
    ids: list[int] = []
    media: list[Media] = []
    starts: list[tuple[int, ...]] = []
    for part in parts:
        if isinstance(part, Media):
            ids.append(shape.vision_start_token)
            media.append(part)
            token = shape.image_token if part.kind == "image" else shape.video_token
            if part.kind == "video" and shape.family.time_as_text:
                runs = []
                for time in part.times(shape.vision.temporal_patch):
                    ids.extend([*text(3 + int(time) % 2, int(10 * time)), shape.vision_start_token])
                    runs.append(len(ids))
                    ids.extend([token] * (part.tokens(2) // part.grid[0]))
                    ids.append(shape.vision_end_token)
                starts.append(tuple(runs))
            else:
                starts.append((len(ids),))
                ids.extend([token] * part.tokens(2))
            ids.append(shape.vision_end_token)
        else:
            ids.extend(part)
    vision = shape.vision
    positions = rope_positions(len(ids), media, starts, merge=vision.merge, tokens_per_second=vision.tokens_per_second)
    return Prompt(name, tuple(ids), positions, tuple(media), tuple(starts), answer)


def text(count: int, seed: int) -> list[int]:
    """Random ordinary token ids."""
    return torch.randint(0, 480, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


@torch.no_grad()
def hf_logprobs(model: Any, item: Prompt, response: Sequence[int], temperature: float) -> torch.Tensor:
    """Log probabilities [R] of a response by one full pass of transformers, with our position ids."""
    chosen = hf_distributions(model, item, response, temperature).gather(-1, torch.tensor(response)[:, None])
    return chosen[:, 0]


def hf_distributions(model: Any, item: Prompt, response: Sequence[int], temperature: float) -> torch.Tensor:
    """Log probabilities [R, vocabulary] of every token at every place of a response.

    Features are scattered here: transformers would take a sampled placeholder id for a missing image.
    """
    ids = torch.tensor([*item.token_ids, *response])
    start = len(item.token_ids)
    hidden = model.get_input_embeddings()(ids)
    deep: dict[str, Any] = {}
    where = torch.zeros(1, len(ids), dtype=torch.bool)
    levels: list[list[torch.Tensor]] = []
    for runs, media in zip(item.media_starts, item.media, strict=True):
        out = model.model.visual(media.patches, grid_thw=torch.tensor([media.grid]))
        for at, features in zip(runs, out.pooler_output.chunk(len(runs)), strict=True):
            hidden[at : at + features.size(0)] = features
            where[:, at : at + features.size(0)] = True
        levels.append(getattr(out, "deepstack_features", None) or [])
    if levels and levels[0]:
        deep["deepstack_visual_embeds"] = [torch.cat(level) for level in zip(*levels, strict=True)]
        deep["visual_pos_masks"] = where
    following = torch.arange(item.next_position, item.next_position + len(response)).expand(3, -1)
    positions = torch.cat([item.positions, following], dim=1)[:, None]
    out = model.model.language_model(inputs_embeds=hidden[None], position_ids=positions, use_cache=False, **deep)
    logits = model.lm_head(out.last_hidden_state[0, start - 1 : -1]).float() / temperature
    distributions: torch.Tensor = logits.log_softmax(-1)
    return distributions
