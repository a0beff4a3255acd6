"""A reference from another folder must read what the model reads; this is seen before anything is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rollplex import setup
from rollplex.api import JobError, RollplexJob
from rollplex.api.shapes import config_of_shape
from tests.engine.tiny import tiny_shape

Change = dict[str, Any]


def folder(path: Path, change: Change, vision: Change) -> str:
    """A model folder with nothing but a config."""
    config = config_of_shape(tiny_shape())
    config = config | change | {"vision_config": config["vision_config"] | vision}
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    return str(path)


@pytest.mark.parametrize(
    ("change", "vision", "says"),
    [
        ({"video_token_id": 400}, {}, "its video_token is 400, the model's 499: it reads other tokens"),
        ({"vision_start_token_id": 400}, {}, "its vision_start_token is 400, the model's 496"),
        ({}, {"patch_size": 16}, "its vision patch is 16, the model's 14: it reads other patches"),
        ({}, {"tokens_per_second": 4}, "its vision tokens_per_second is 4, the model's 2"),
    ],
)
@pytest.mark.parametrize("name", ["opd", "grpo"])
def test_a_reference_that_reads_other_tokens_is_refused(
    name: str, change: Change, vision: Change, says: str, tmp_path: Path
) -> None:
    with pytest.raises(JobError) as caught:
        setup.build_models(spec(name, tmp_path, change, vision))
    [fault] = caught.value.faults
    assert fault.path == "spec.model.reference"
    assert fault.message.startswith(says)


def spec(name: str, place: Path, change: Change, vision: Change) -> Any:
    model = {"path": folder(place / "model", {}, {}), "reference": folder(place / "teacher", change, vision)}
    return RollplexJob.model_validate(
        {
            "metadata": {"name": "small"},
            "spec": {
                "model": model,
                "data": {"train": "t.jsonl"},
                "reward": [{"name": "exact"}],
                "algorithm": {"name": name},
                "training": {"steps": 3},
            },
        }
    ).spec


def test_a_larger_vocabulary_is_padding_and_a_smaller_one_refused(tmp_path: Path) -> None:
    """What comes after the check is the weights, which these folders lack."""
    place = tmp_path / "larger"
    place.mkdir()
    with pytest.raises(JobError) as caught:
        setup.build_models(spec("opd", place, _vocabulary(640), {}))
    assert caught.value.faults[0].path == "spec.model.path"
    place = tmp_path / "smaller"
    place.mkdir()
    with pytest.raises(JobError, match=r"spec\.model\.reference: it has 499 token ids, the model 500"):
        setup.build_models(spec("opd", place, _vocabulary(499), {}))


def _vocabulary(size: int) -> Change:
    config = config_of_shape(tiny_shape())
    if "text_config" in config:
        return {"text_config": config["text_config"] | {"vocab_size": size}}
    return {"vocab_size": size}
