"""A Qwen2.5-VL of 0.7 M parameters, or a Qwen3-VL of 1.1 M, with tokenizer and processor, for a laptop's CPU.

Recipe, also written to the folder's README.md:

1. Random weights: matrices normal with std 0.08, biases with std 0.05 (smaller ones do not learn from rewards alone).
2. A warm-up on the *answer format* only: supervised steps on pictures of random colours, where the prompt is a
   question of :mod:`rollplex.data.shapes` and the target a uniformly random answer word of that question's kind, then
   ``<|im_end|>``. Pictures and targets are independent: the model learns to answer with one word of the right list and
   nothing of what the words mean. Its reward is therefore that of guessing, one in the number of words.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from rollplex.api.families import QWEN2_5_VL, QWEN3_VL
from rollplex.api.shapes import SHAPES, ModelShape, config_of_shape
from rollplex.batch import Media
from rollplex.data.prompt import PromptBuilder
from rollplex.data.shapes import ANSWERS, QUESTIONS
from rollplex.environment import prepare_torchvision

MODEL_TYPES = {"qwen2.5-vl": QWEN2_5_VL.model_type, "qwen3-vl": QWEN3_VL.model_type}
NAMES = {"qwen2.5-vl": "Qwen2.5-VL", "qwen3-vl": "Qwen3-VL"}

SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
# The template that Qwen2.5-VL's own folders carry; Qwen3-VL's places media alike.
CHAT_TEMPLATE = (
    "{% set image_count = namespace(value=0) %}{% set video_count = namespace(value=0) %}"
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}<|im_start|>system\n"
    "You are a helpful assistant.<|im_end|>\n{% endif %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}<|im_end|>\n{% else %}"
    "{% for content in message['content'] %}"
    "{% if content['type'] == 'image' or 'image' in content or 'image_url' in content %}"
    "{% set image_count.value = image_count.value + 1 %}"
    "{% if add_vision_id %}Picture {{ image_count.value }}: {% endif %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif content['type'] == 'video' or 'video' in content %}"
    "{% set video_count.value = video_count.value + 1 %}"
    "{% if add_vision_id %}Video {{ video_count.value }}: {% endif %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif 'text' in content %}{{ content['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
VOCABULARY = SHAPES["qwen2.5-vl-tiny"].vocabulary
PIXELS = {"shortest_edge": 56 * 56, "longest_edge": 64 * 28 * 28}  # what one frame may have after the resize
GRID = (2, 6, 6)  # what a video of rollplex.data.shapes of the default size has at 2 fps
WARM_UP_STEPS = 80  # for every kind of question
WARM_UP_BATCH = 16
WARM_UP_LEARNING_RATE = 1e-3


def make(out: Path, seed: int, kinds: Sequence[str] = ("colour",), family: str = "qwen2.5-vl") -> None:
    """Make the model and write it to a Hugging Face folder (< 5 MB, fp32) with a README.md that states the recipe.

    Args:
        out: folder, made if missing.
        seed: of the weights and of the warm-up; the same seed gives the same weights on the same machine.
        kinds: kinds of question whose answer format is warmed up.
        family: one of :data:`MODEL_TYPES`.

    Raises:
        ValueError: no or an unknown kind, or an unknown family.
    """
    unknown = [kind for kind in kinds if kind not in QUESTIONS]
    if unknown or not kinds:
        raise ValueError(f"kinds is {list(kinds)}; choose from {', '.join(QUESTIONS)}")
    if family not in MODEL_TYPES:
        raise ValueError(f"family is {family!r}; choose from {', '.join(MODEL_TYPES)}")
    ids = save_processor(out, MODEL_TYPES[family])
    shape = with_tokens(SHAPES[f"{family}-tiny"], ids)
    model = _model(shape, ids, seed)
    model.config.save_pretrained(out)
    loss = _warm_up(model, PromptBuilder(out, shape.max_positions), kinds, seed)
    model.save_pretrained(out)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    (out / "README.md").write_text(_readme(family, parameters, kinds, seed, loss))


def save_processor(out: Path, model_type: str) -> dict[str, int]:
    """Write tokenizer, chat template and processor alone; returns the ids of the special tokens."""
    prepare_torchvision()
    from transformers import (
        Qwen2_5_VLProcessor,
        Qwen2VLImageProcessor,
        Qwen2VLVideoProcessor,
        Qwen3VLProcessor,
        Qwen3VLVideoProcessor,
    )

    out.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer()
    given: dict[str, Any] = {"size": PIXELS, "do_sample_frames": False, "cap_pixels_per_frame": False}
    processor: Any
    if model_type == QWEN3_VL.model_type:
        half = [0.5, 0.5, 0.5]  # mean and std in Qwen's own folders
        image = Qwen2VLImageProcessor(size=PIXELS, patch_size=16, image_mean=half, image_std=half)
        processor = Qwen3VLProcessor(image, tokenizer, Qwen3VLVideoProcessor(**given), chat_template=CHAT_TEMPLATE)
    else:
        image = Qwen2VLImageProcessor(size=PIXELS)
        processor = Qwen2_5_VLProcessor(image, tokenizer, Qwen2VLVideoProcessor(**given), chat_template=CHAT_TEMPLATE)
    processor.save_pretrained(out)
    return {token: tokenizer.convert_tokens_to_ids(token) for token in SPECIAL}


def with_tokens(shape: ModelShape, ids: Mapping[str, int]) -> ModelShape:
    """A shape whose special tokens are those of :func:`save_processor`."""
    return replace(
        shape,
        image_token=ids["<|image_pad|>"],
        video_token=ids["<|video_pad|>"],
        vision_start_token=ids["<|vision_start|>"],
        vision_end_token=ids["<|vision_end|>"],
        eos_tokens=(ids["<|im_end|>"],),
    )


def _tokenizer() -> Any:
    """A byte-level BPE of fewer than :data:`VOCABULARY` tokens in which every answer word is one token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    words = sorted({word for answers in ANSWERS.values() for word in answers})
    corpus = [*QUESTIONS.values(), "You are a helpful assistant.", "system\n", "user\n", "assistant\n"]
    corpus += words * 2  # at a line's start, as answers stand; twice, so that their merges come first
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    room = VOCABULARY - len(SPECIAL)
    backend.train_from_iterator(
        corpus, trainers.BpeTrainer(vocab_size=room, initial_alphabet=alphabet, show_progress=False)
    )
    backend.add_special_tokens(list(SPECIAL))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=[token for token in SPECIAL if token not in ("<|im_end|>", "<|endoftext|>")],
        model_max_length=2048,
    )
    for word in words:
        pieces = tokenizer.encode(word, add_special_tokens=False)
        assert len(pieces) == 1, f"{word!r} became {len(pieces)} tokens"
    assert len(tokenizer) <= VOCABULARY
    return tokenizer


def _model(shape: ModelShape, ids: Mapping[str, int], seed: int) -> Any:
    from transformers import AutoConfig, AutoModelForImageTextToText

    document = config_of_shape(shape)
    document["text_config"] |= {"bos_token_id": ids["<|endoftext|>"], "pad_token_id": ids["<|endoftext|>"]}
    torch.manual_seed(seed)
    model = AutoModelForImageTextToText.from_config(AutoConfig.for_model(**document)).to(torch.float32)
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.08)
        elif name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.05)
    return model


def _warm_up(model: Any, builder: PromptBuilder, kinds: Sequence[str], seed: int) -> float:
    """Teach the answer format; returns the last loss in nats a token (guessing n words costs ln(n) / 2)."""
    rng = random.Random(seed)
    patch_dim = builder.shape.vision.patch_dim
    picture = Media("video", torch.empty(0), GRID, seconds_per_grid=1.0)
    prompts = {}
    for kind in kinds:
        content = [{"type": "video"}, {"type": "text", "text": QUESTIONS[kind]}]
        prompts[kind] = builder.build(kind, [{"role": "user", "content": content}], [picture])
    token = builder.tokenizer.convert_tokens_to_ids
    words = {kind: [token(word) for word in ANSWERS[kind]] for kind in kinds}
    optimizer = torch.optim.AdamW(model.parameters(), lr=WARM_UP_LEARNING_RATE, weight_decay=0.0)
    loss = torch.tensor(float("nan"))
    steps = WARM_UP_STEPS * len(kinds)
    for step in range(steps):
        kind = kinds[step % len(kinds)]
        prompt = prompts[kind]
        targets = _shuffled(words[kind], WARM_UP_BATCH, rng)
        ids = torch.tensor([[*prompt.token_ids, target, token("<|im_end|>")] for target in targets])
        following = torch.arange(prompt.next_position, prompt.next_position + 2).expand(3, -1)
        positions = torch.cat([prompt.positions, following], dim=1)
        logits = model(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            position_ids=positions[:, None].expand(-1, WARM_UP_BATCH, -1),
            pixel_values_videos=_random_pictures(WARM_UP_BATCH, GRID, patch_dim),
            video_grid_thw=torch.tensor([GRID] * WARM_UP_BATCH),
            use_cache=False,
        ).logits[:, -3:-1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, -2:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = WARM_UP_LEARNING_RATE * (1 - step / steps)
        optimizer.step()
    return loss.item()


def _shuffled(words: Sequence[int], length: int, rng: random.Random) -> list[int]:
    """Random words for a batch, each as often as the others, so that the guess stays even."""
    drawn = [word for _ in range(-(-length // len(words))) for word in rng.sample(words, len(words))][:length]
    rng.shuffle(drawn)
    return drawn


def _random_pictures(count: int, grid: tuple[int, int, int], patch_dim: int) -> torch.Tensor:
    """Patches [count * t * h * w, patch_dim]: a random colour per picture, another per patch, and noise per pixel."""
    t, h, w = grid
    colour = torch.randn(count, 1, 3, 1) + 0.5 * torch.randn(count, t * h * w, 3, 1)
    return (colour + 0.2 * torch.randn(count, t * h * w, 3, patch_dim // 3)).flatten(0, 1).flatten(1)


def _readme(family: str, parameters: int, kinds: Sequence[str], seed: int, loss: float) -> str:
    guessing = "".join(f"- {kind}: 1 in {len(ANSWERS[kind])} ({', '.join(ANSWERS[kind])})\n" for kind in kinds)
    return f"""# A tiny {NAMES[family]} for trying out Rollplex

{parameters:,} parameters, fp32, seed {seed}. Made by `rollplex.data.tiny_model`; not a model to use for anything else.

1. Random weights: matrices normal with std 0.08, biases with std 0.05.
2. Warm-up on the answer format only: {WARM_UP_STEPS} steps of AdamW a kind of question, on batches of {WARM_UP_BATCH},
   learning rate {WARM_UP_LEARNING_RATE:g} falling to 0; pictures of random colours, a question about shapes, and as
   target a uniformly random answer word, then `<|im_end|>`. Pictures and targets are independent, so nothing of the
   words' meaning is learnt. Last loss: {loss:.3f} nats a token.

Reward by guessing, which is where training starts:

{guessing}"""
