"""``rollplex export``: a checkpoint's actor as a Hugging Face folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rollplex.api.errors import JobError
from rollplex.api.shapes import shape_from_folder
from rollplex.checkpoint.place import Place
from rollplex.checkpoint.store import Checkpoint, CheckpointStore, DamagedError
from rollplex.weights.export import export_folder
from rollplex.weights.hf import hf_views

SHARD_BYTES = 5_000_000_000

README = """\
# {name}, step {step}

Trained by Rollplex from `{source}`; job, step and held-out reward: {job}, {step}, {score}. Weights, tokenizer and
processor load in vLLM and in transformers like those of the model that the run began with.

## Positions after a video
vLLM, Qwen's own code and Rollplex let what follows an image or video go on at the largest position so far plus one.
transformers 5.19 goes on at the medium's start plus the larger side of its grid, in merged patches, which is another
number for most videos: log probabilities then differ by 0.3-0.9 nats. So with transformers pass the position ids:

```python
from transformers import AutoProcessor, Qwen2_5_VLForConditionalGeneration

from rollplex.api.shapes import shape_from_folder
from rollplex.positions import positions_of_inputs

model = Qwen2_5_VLForConditionalGeneration.from_pretrained(folder).eval()
processor = AutoProcessor.from_pretrained(folder)
metadata = [{{"fps": fps, "total_num_frames": len(frames)}} for frames in videos]
inputs = processor(text=[text], videos=videos, video_metadata=metadata, return_tensors="pt")
position_ids = positions_of_inputs(inputs, shape_from_folder(folder))
logits = model(**inputs, position_ids=position_ids).logits
```

`folder` is this one, `text` a prompt with `<|vision_start|><|video_pad|><|vision_end|>`, `videos` a list of arrays of
frames, `fps` how many of them are a second (without it transformers takes 24). vLLM needs nothing of the kind.
"""


def export(run: str, out: Path, step: int | None, say: Callable[[str], object]) -> None:
    """Write a checkpoint's weights, with config, tokenizer and processor of the model that the run began with.

    Args:
        run: name or folder.
        out: folder to write; must not be there, or be empty.
        step: of the checkpoint; the newest whole one by default.
        say: gets the lines that a person should see.

    Raises:
        JobError: no such run or checkpoint, or the model's folder is gone.
    """
    place = Place.of_run(run)
    found = _checkpoint(CheckpointStore(place.checkpoints), step, say)
    job = found.state()["job"]
    source = Path(job["spec"]["model"]["path"])
    try:
        shape = shape_from_folder(source)
    except ValueError as error:
        raise JobError.at(
            "spec.model.path", f"{error} (the run's job names it; config and tokenizer are there)"
        ) from None
    views = hf_views(dict(found.tensors("actor/language.")), dict(found.tensors("actor/visual.")), shape)
    score = "not measured" if found.score is None else f"{found.score:.3f}"
    name = job["metadata"]["name"]
    readme = README.format(name=name, step=found.step, source=source, job=name, score=score)
    try:
        files = export_folder(out, views, source, readme, SHARD_BYTES)
    except ValueError as error:
        raise JobError.at("--out", str(error)) from None
    size = sum(file.stat().st_size for file in files)
    say(f"{out}: step {found.step} of {name}, {len(files)} weight file(s), {size / 1e6:.1f} MB, README.md")


def _checkpoint(store: CheckpointStore, step: int | None, say: Callable[[str], object]) -> Checkpoint:
    if step is None:
        newest = store.newest(lambda bad, fault: say(f"checkpoint of step {bad} is damaged: {fault}; passed over"))
        if newest is None:
            raise JobError.at("RUN", f"no checkpoint in {store.folder} is whole")
        return newest
    if step not in store.steps():
        kept = ", ".join(map(str, store.steps()))
        raise JobError.at("--step", f"{step} has no checkpoint; there are {kept}")
    try:
        found = store.read(step)
        found.verify()
    except DamagedError as error:
        raise JobError.at("--step", f"the checkpoint of step {step} is damaged: {error}") from None
    return found
