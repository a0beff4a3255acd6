"""``rollplex export``: a checkpoint's actor as a Hugging Face folder."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path

from rollplex.api.errors import JobError
from rollplex.api.shapes import shape_from_folder
from rollplex.checkpoint.place import Place
from rollplex.checkpoint.store import Checkpoint, CheckpointStore, DamagedError
from rollplex.files import reason, refuse_unwritable
from rollplex.weights.export import export_folder
from rollplex.weights.hf import hf_views

SHARD_BYTES = 5_000_000_000

README = """\
# {name}, step {step}

Trained by Rollplex from `{source}`; job, step and held-out reward: {job}, {step}, {score}. Weights, tokenizer and
processor load in vLLM and in transformers like those of the model that the run began with.

## In vLLM
`LLM(folder)`, and nothing else.

## In transformers: positions after a video
vLLM, Qwen's own code and Rollplex let what follows an image or video go on at the largest position so far plus one.
transformers 5.19 goes on at the medium's start plus the larger side of its grid, in merged patches, which is another
number for most videos of a Qwen2.5-VL: log probabilities then differ by 0.3-0.9 nats. (Qwen3-VL's temporal rows are
placed one by one, where both rules agree.) So with transformers pass the position ids:

```python
from rollplex.environment import prepare_torchvision

prepare_torchvision()  # before transformers; does nothing where torchvision is of torch's own build (see below)

from transformers import AutoModelForImageTextToText, AutoProcessor

from rollplex.api.shapes import shape_from_folder
from rollplex.positions import positions_of_inputs

model = AutoModelForImageTextToText.from_pretrained(folder).eval()
processor = AutoProcessor.from_pretrained(folder)
lengths = [len(frames) for frames in videos]
metadata = [{{"fps": fps, "total_num_frames": n, "frames_indices": list(range(n))}} for n in lengths]
inputs = processor(text=[text], videos=videos, video_metadata=metadata, return_tensors="pt")
position_ids = positions_of_inputs(inputs, shape_from_folder(folder))
logits = model(**inputs, position_ids=position_ids).logits
```

`folder` is this one, `text` a prompt with `<|vision_start|><|video_pad|><|vision_end|>`, `videos` a list of arrays of
frames, `fps` how many of them are a second (without it transformers takes 24).

## `operator torchvision::nms does not exist`
is what an import says where torchvision is not of torch's own build: PyPI's torchvision is compiled for CUDA, and
beside a CPU build of torch its operators do not load. The cure is the torchvision of the package index that torch came
from. Where there is none, the lines above work as they are. vLLM looks at a model's class in a process of its own, so
name the class:

```python
from rollplex.environment import prepare

prepare()  # torchvision, and the engine in this process

from vllm import LLM, ModelRegistry, SamplingParams
from vllm.model_executor.models.{module} import {architecture}

ModelRegistry.register_model("{architecture}", {architecture})
llm = LLM(folder)
```
"""


def export(run: str, out: Path, step: int | None, say: Callable[[str], object]) -> None:
    """Write a checkpoint's weights, with config, tokenizer and processor of the model that the run began with.

    Args:
        run: name or folder.
        out: folder to write; must not be there, or be empty.
        step: of the checkpoint; the newest whole one by default.
        say: gets the lines that a person should see.

    Raises:
        JobError: no such run or checkpoint, the model's folder is gone, or ``out`` cannot be written, of which then
            nothing is left.
    """
    try:
        refuse_unwritable(out.parent)
    except OSError as error:
        raise _unwritable(out, error, None) from None
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
    readme = README.format(
        name=name, step=found.step, source=source, job=name, score=score,
        module=shape.family.model_type, architecture=shape.family.architecture,
    )  # fmt: skip
    try:
        files = export_folder(out, views, source, readme, SHARD_BYTES)
    except ValueError as error:
        raise JobError.at("--out", str(error)) from None
    except OSError as error:
        aside = out.with_name(f".writing-{out.name}")  # export_folder's
        if aside.is_dir():  # half an export is of no use, and takes room
            shutil.rmtree(aside, ignore_errors=True)
        if error.filename is not None and not Path(error.filename).is_relative_to(aside):
            raise  # a file that was read
        needed = sum(math.prod(view.shape) * view.view.dtype.itemsize for view in views.values())
        raise _unwritable(out, error, needed) from None
    size = sum(file.stat().st_size for file in files)
    say(f"{out}: step {found.step} of {name}, {len(files)} weight file(s), {size / 1e6:.1f} MB, README.md")


def _unwritable(out: Path, error: OSError, needed: int | None) -> JobError:
    why = reason(error, out.parent, needed)
    return JobError.at("--out", f"{out} cannot be written: {why}; make room there, or choose another folder")


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
