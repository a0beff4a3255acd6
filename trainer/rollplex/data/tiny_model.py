"""A Qwen2.5-VL of 0.7 M parameters with tokenizer and processor, small enough to train on a laptop's CPU.

Recipe, also written to the folder's README.md:

1. Random weights: matrices normal with std 0.08, biases with std 0.05 (smaller ones do not learn from rewards alone).
2. A warm-up on the *answer format* only: supervised steps on pictures of random colours, where the prompt is a
   question of :mod:`rollplex.data.shapes` and the target a uniformly random answer word of that question's kind, then
   ``<|im_end|>``. Pictures and targets are independent: the model learns to answer with one word of the right list and
   nothing of what the words mean. Its reward is therefore that of guessing, one in the number of words.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from rollplex.batch import Media
from rollplex.data.shapes import ANSWERS, QUESTIONS
from rollplex.environment import prepare_torchvision
from rollplex.positions import rope_positions

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
# The template that Qwen2.5-VL's own folders carry.
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
VOCABULARY = 512
PIXELS = {"shortest_edge": 56 * 56, "longest_edge": 64 * 28 * 28}  # what one frame may have after the resize
GRID = (2, 6, 6)  # what a video of rollplex.data.shapes of the default size has at 2 fps
WARM_UP_STEPS = 80  # for every kind of question
WARM_UP_BATCH = 16
WARM_UP_LEARNING_RATE = 1e-3


def make(out: Path, seed: int, kinds: Sequence[str] = ("colour",)) -> None:
    """Make the model and write it to a Hugging Face folder (< 3 MB, fp32) with a README.md that states the recipe.

    Args:
        out: folder, made if missing.
        seed: of the weights and of the warm-up; the same seed gives the same weights on the same machine.
        kinds: kinds of question whose answer format is warmed up.

    Raises:
        ValueError: no or an unknown kind.
    """
    unknown = [kind for kind in kinds if kind not in QUESTIONS]
    if unknown or not kinds:
        raise ValueError(f"kinds is {list(kinds)}; choose from {', '.join(QUESTIONS)}")
    prepare_torchvision()
    tokenizer = _tokenizer()
    model = _model(tokenizer, seed)
    loss = _warm_up(model, tokenizer, kinds, seed)
    out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(out)
    _save_processor(out, tokenizer)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    (out / "README.md").write_text(_readme(parameters, kinds, seed, loss))


def save_processor(out: Path) -> dict[str, int]:
    """Write tokenizer, chat template and processor alone; returns the ids of the special tokens."""
    prepare_torchvision()
    tokenizer = _tokenizer()
    _save_processor(out, tokenizer)
    return {token: tokenizer.convert_tokens_to_ids(token) for token in SPECIAL}


def _save_processor(out: Path, tokenizer: Any) -> None:
    from transformers import Qwen2_5_VLProcessor, Qwen2VLImageProcessor, Qwen2VLVideoProcessor

    processor = Qwen2_5_VLProcessor(
        Qwen2VLImageProcessor(size=PIXELS),
        tokenizer,
        Qwen2VLVideoProcessor(size=PIXELS, do_sample_frames=False, cap_pixels_per_frame=False),
        chat_template=CHAT_TEMPLATE,
    )
    processor.save_pretrained(out)


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


def _model(tokenizer: Any, seed: int) -> Any:
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in SPECIAL}
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": VOCABULARY,
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 2048,
            "rms_norm_eps": 1e-6,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 6, 6]},
            "bos_token_id": ids["<|endoftext|>"],
            "eos_token_id": ids["<|im_end|>"],
            "pad_token_id": ids["<|endoftext|>"],
        },
        vision_config={
            "depth": 2,
            "hidden_size": 64,
            "num_heads": 2,
            "intermediate_size": 128,
            "out_hidden_size": 128,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "window_size": 112,
            "fullatt_block_indexes": [1],
            "tokens_per_second": 2,
        },
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=False,
    )
    torch.manual_seed(seed)
    model = Qwen2_5_VLForConditionalGeneration(config).to(torch.float32)
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.08)
        elif name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.05)
    return model


def _warm_up(model: Any, tokenizer: Any, kinds: Sequence[str], seed: int) -> float:
    """Teach the answer format; returns the last loss in nats a token (guessing n words costs ln(n) / 2)."""
    rng = random.Random(seed)
    prompts: dict[str, list[int]] = {}
    for kind in kinds:
        content = [{"type": "video"}, {"type": "text", "text": QUESTIONS[kind]}]
        messages = [{"role": "user", "content": content}]
        text = tokenizer.apply_chat_template(
            messages, chat_template=CHAT_TEMPLATE, tokenize=False, add_generation_prompt=True
        )
        text = text.replace("<|video_pad|>", "<|video_pad|>" * (GRID[0] * GRID[1] * GRID[2] // 4))
        prompts[kind] = tokenizer.encode(text, add_special_tokens=False)
    stop = tokenizer.convert_tokens_to_ids("<|im_end|>")
    words = {kind: [tokenizer.convert_tokens_to_ids(word) for word in ANSWERS[kind]] for kind in kinds}
    optimizer = torch.optim.AdamW(model.parameters(), lr=WARM_UP_LEARNING_RATE, weight_decay=0.0)
    loss = torch.tensor(float("nan"))
    steps = WARM_UP_STEPS * len(kinds)
    for step in range(steps):
        kind = kinds[step % len(kinds)]
        targets = _shuffled(words[kind], WARM_UP_BATCH, rng)
        ids = torch.tensor([[*prompts[kind], target, stop] for target in targets])
        pictures = _random_pictures(WARM_UP_BATCH, GRID)
        media = Media("video", pictures, GRID, seconds_per_grid=1.0)
        start = prompts[kind].index(model.config.video_token_id)
        positions = rope_positions(ids.shape[1], [media], [start], merge=2, tokens_per_second=2)
        logits = model(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            position_ids=positions[:, None].expand(-1, WARM_UP_BATCH, -1),
            pixel_values_videos=pictures,
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


def _random_pictures(count: int, grid: tuple[int, int, int]) -> torch.Tensor:
    """Patches [count * t * h * w, patch_dim]: a random colour per picture, another per patch, and noise per pixel."""
    t, h, w = grid
    colour = torch.randn(count, 1, 3, 1) + 0.5 * torch.randn(count, t * h * w, 3, 1)
    return (colour + 0.2 * torch.randn(count, t * h * w, 3, 2 * 14 * 14)).flatten(0, 1).flatten(1)


def _readme(parameters: int, kinds: Sequence[str], seed: int, loss: float) -> str:
    guessing = "".join(f"- {kind}: 1 in {len(ANSWERS[kind])} ({', '.join(ANSWERS[kind])})\n" for kind in kinds)
    return f"""# A tiny Qwen2.5-VL for trying out Rollplex

{parameters:,} parameters, fp32, seed {seed}. Made by `rollplex.data.tiny_model`; not a model to use for anything else.

1. Random weights: matrices normal with std 0.08, biases with std 0.05.
2. Warm-up on the answer format only: {WARM_UP_STEPS} steps of AdamW a kind of question, on batches of {WARM_UP_BATCH},
   learning rate {WARM_UP_LEARNING_RATE:g} falling to 0; pictures of random colours, a question about shapes, and as
   target a uniformly random answer word, then `<|im_end|>`. Pictures and targets are independent, so nothing of the
   words' meaning is learnt. Last loss: {loss:.3f} nats a token.

Reward by guessing, which is where training starts:

{guessing}"""
