"""The tiny model answers in the right format and knows nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoProcessor, Qwen2_5_VLForConditionalGeneration

from rollplex.api.data import DataSpec
from rollplex.api.shapes import SHAPES, shape_from_folder
from rollplex.data import tiny_model
from rollplex.data.dataset import read_rows
from rollplex.data.reader import Reader
from rollplex.data.shapes import ANSWERS, QUESTIONS
from rollplex.data.tiny_model import save_processor, with_tokens


def test_folder_is_small_and_whole(model_folder: Path) -> None:
    assert sum(path.stat().st_size for path in model_folder.iterdir()) < 3e6
    shape = shape_from_folder(model_folder)
    assert (shape.hidden, shape.layers, shape.vision.depth) == (128, 2, 2)
    weights = load_file(model_folder / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}
    readme = (model_folder / "README.md").read_text()
    assert "colour: 1 in 4 (red, green, blue, yellow)" in readme
    assert f"{sum(tensor.numel() for tensor in weights.values()):,} parameters" in readme


def test_every_answer_is_one_token_also_behind_the_prompt(model_folder: Path) -> None:
    tokenizer = AutoProcessor.from_pretrained(model_folder).tokenizer
    turn = "<|im_start|>assistant\n"
    before = tokenizer.encode(turn, add_special_tokens=False)
    for word in {word for words in ANSWERS.values() for word in words}:
        assert tokenizer.encode(turn + word, add_special_tokens=False) == [
            *before,
            tokenizer.convert_tokens_to_ids(word),
        ]


def test_it_answers_with_a_colour_and_guesses_whatever_it_sees(model_folder: Path, shapes_folder: Path) -> None:
    rows = [row for row in read_rows(shapes_folder / "train.jsonl", "data") if row.fields["kind"] == "colour"]
    reader = Reader(model_folder, DataSpec(train="-", workers=1))
    prompts = reader.read_all(rows, "data")
    reader.close()
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(model_folder, dtype=torch.float32)
    tokenizer = AutoProcessor.from_pretrained(model_folder).tokenizer
    words = [tokenizer.convert_tokens_to_ids(word) for word in ANSWERS["colour"]]
    for blank in (False, True):
        patches = torch.cat([prompt.media[0].patches for prompt in prompts])
        ids = torch.tensor([[*prompt.token_ids, words[0]] for prompt in prompts])
        positions = [torch.cat([prompt.positions, torch.full((3, 1), prompt.next_position)], 1) for prompt in prompts]
        with torch.no_grad():
            logits = model(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                position_ids=torch.stack(positions, 1),
                pixel_values_videos=torch.zeros_like(patches) if blank else patches,
                video_grid_thw=torch.tensor([prompt.media[0].grid for prompt in prompts]),
                use_cache=False,
            ).logits.softmax(-1)
        answers = logits[:, -2, words]
        assert answers.sum(1).min() > 0.95
        assert logits[:, -1, tokenizer.convert_tokens_to_ids("<|im_end|>")].min() > 0.95
        right = torch.tensor([ANSWERS["colour"].index(prompt.answer) for prompt in prompts])
        assert abs(answers[torch.arange(len(right)), right].mean().item() - 0.25) < 0.05
        assert (answers.mean(0) - 0.25).abs().max() < 0.05


@pytest.mark.parametrize("family", tiny_model.MODEL_TYPES)
def test_the_same_seed_makes_the_same_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str) -> None:
    monkeypatch.setattr(tiny_model, "WARM_UP_STEPS", 2)
    weights = {}
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        tiny_model.make(tmp_path / name, seed, ["colour", "count"], family)
        shape = shape_from_folder(tmp_path / name)
        assert shape.model_type == tiny_model.MODEL_TYPES[family]
        assert with_tokens(SHAPES[f"{family}-tiny"], save_processor(tmp_path, shape.model_type)) == replace(
            shape, name=f"{family}-tiny"
        )
        weights[name] = (tmp_path / name / "model.safetensors").read_bytes()
    assert weights["a"] == weights["b"] != weights["c"]
    assert "count: 1 in 4 (one, two, three, four)" in (tmp_path / "a" / "README.md").read_text()


@pytest.mark.parametrize("kinds", [[], ["size"]])
def test_make_refuses_unknown_kinds(tmp_path: Path, kinds: list[str]) -> None:
    with pytest.raises(ValueError, match=f"choose from {', '.join(QUESTIONS)}"):
        tiny_model.make(tmp_path, 1, kinds)


def test_make_refuses_an_unknown_family(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^family is 'qwen4'; choose from qwen2.5-vl, qwen3-vl$"):
        tiny_model.make(tmp_path, 1, family="qwen4")
