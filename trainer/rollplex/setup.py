"""From a job to running parts: models, optimizer, rollout. Each ``build_*`` makes one of them."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from rollplex.api.errors import JobError
from rollplex.api.job import JobSpec, RollplexJob
from rollplex.api.shapes import ModelShape, shape_from_folder
from rollplex.memory.gradients import Gradients
from rollplex.memory.optimizer import MasterAdamW
from rollplex.memory.streamed import StreamedAdamW
from rollplex.policy.policy import Policy, load_policy
from rollplex.rollout.engine import RolloutEngine
from rollplex.rollout.protocol import Rollout, Sampling
from rollplex.rollout.replay import ReplayEngine, ReplayError, read_rollouts
from rollplex.step.runner import Models
from rollplex.weights.share import share_weights

_MOST_SEQUENCES = 256  # decoded at once; the rest of a step waits in the engine's queue
_CPU_KV_BYTES = 4 << 30
_GPU_KV_BYTES = 16 << 30


def device() -> str:
    """Where models live: the process's GPU, else the CPU."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def precision(spec: JobSpec) -> torch.dtype:
    """dtype of weights and activations; ``auto`` is fp32 on CPU and bf16 on a GPU."""
    if spec.precision == "auto":
        return torch.bfloat16 if device() == "cuda" else torch.float32
    return {"fp32": torch.float32, "bf16": torch.bfloat16}[spec.precision]


def recompute(spec: JobSpec) -> bool:
    """Whether layers drop their activations and run again in the backward."""
    return spec.memory.activations == "recompute"


def model_shape(spec: JobSpec) -> ModelShape:
    """Shape of the job's model folder. Raises JobError where it is missing or unsupported."""
    return _shape("spec.model.path", spec.model.path)


def _shape(field: str, folder: str) -> ModelShape:
    _refuse_missing(field, Path(folder), "config.json")
    try:
        return shape_from_folder(folder)
    except ValueError as error:
        raise JobError.at(field, str(error)) from None


def _refuse_missing(field: str, folder: Path, pattern: str) -> None:
    """Model and reference are read by the same functions, which cannot know the field that names the folder."""
    if not any(folder.glob(pattern)):
        raise JobError.at(
            field, f"{folder / pattern} is missing; {field.removeprefix('spec.')} must be a Hugging Face folder with it"
        )


def resolved(job: RollplexJob, shape: ModelShape) -> RollplexJob:
    """The job with what its model and its algorithm decide spelled out.

    The model's own end tokens in ``rollout.stop``: nothing stops a response silently; the longest prompt, where the job
    leaves it open; the algorithm's own clip, normalisation and KL weight.

    Raises:
        JobError: a stop id that the model does not have, or prompt and response longer than its positions.
    """
    stops: list[int | str] = list(shape.eos_tokens)
    generation = Path(job.spec.model.path) / "generation_config.json"
    if generation.exists():
        named = json.loads(generation.read_text()).get("eos_token_id") or []
        stops += named if isinstance(named, list) else [named]
    stops += job.spec.rollout.stop
    for stop in stops:
        if isinstance(stop, int) and stop >= shape.vocabulary:
            raise JobError.at(
                "spec.rollout.stop", f"{stop} is no token of the model; its ids end at {shape.vocabulary - 1}"
            )
    rollout = job.spec.rollout.model_copy(update={"stop": tuple(dict.fromkeys(stops))})
    data = job.spec.data.model_copy(update={"max_prompt_tokens": _longest_prompt(job.spec, shape)})
    algorithm = job.spec.algorithm.filled(rollout.max_tokens)
    spec = job.spec.model_copy(update={"data": data, "rollout": rollout, "algorithm": algorithm})
    return job.model_copy(update={"spec": spec})


def _longest_prompt(spec: JobSpec, shape: ModelShape) -> int:
    """``data.maxPromptTokens``; where the job leaves it open, what the model's positions leave beside a response."""
    prompt, response, positions = spec.data.max_prompt_tokens, spec.rollout.max_tokens, shape.max_positions
    if prompt + response <= positions:
        return prompt
    if "max_prompt_tokens" not in spec.data.model_fields_set and response < positions:
        return positions - response
    raise JobError.at(
        "spec.data.maxPromptTokens",
        f"{prompt}, with rollout.maxTokens {response} behind it, is more than the model's {positions} positions "
        "(max_position_embeddings); lower one of the two",
    )


def build_models(spec: JobSpec) -> Models:
    """Actor with gradients and optimizer, and the reference (for opd the teacher) where the loss needs one.

    Raises:
        JobError: a folder that cannot be loaded, a reference that reads other tokens, or nothing left to train.
    """
    given = spec.model.reference
    if spec.algorithm.needs_reference and given != "initial":  # before a large model is loaded for nothing
        _refuse_other_tokens(model_shape(spec), _shape("spec.model.reference", given))
    actor = _load(spec, "spec.model.path", spec.model.path)
    if not spec.algorithm.needs_reference:
        return assemble(spec, actor, None)
    if given == "initial":
        return assemble(spec, actor, _load(spec, "spec.model.path", spec.model.path))
    return assemble(spec, actor, _load(spec, "spec.model.reference", given))


def _refuse_other_tokens(actor: ModelShape, reference: ModelShape) -> None:
    """Both models are given the same ids, patches and positions: what these mean must be the same.

    Raises:
        JobError: it is not. A larger vocabulary is the padding of a larger model.
    """
    field = "spec.model.reference"
    for name in ("image_token", "video_token", "vision_start_token", "vision_end_token"):
        if getattr(actor, name) != getattr(reference, name):
            ids = f"{getattr(reference, name)}, the model's {getattr(actor, name)}"
            raise JobError.at(field, f"its {name} is {ids}: it reads other tokens; choose a model of the same family")
    for name in ("patch", "temporal_patch", "merge", "channels", "tokens_per_second"):
        ours, theirs = getattr(actor.vision, name), getattr(reference.vision, name)
        if ours != theirs:
            raise JobError.at(
                field, f"its vision {name} is {theirs}, the model's {ours}: it reads other patches; choose another"
            )
    if reference.vocabulary < actor.vocabulary:
        raise JobError.at(
            field,
            f"it has {reference.vocabulary} token ids, the model {actor.vocabulary}: it cannot score all of them; "
            "choose another",
        )


def assemble(spec: JobSpec, actor: Policy, reference: Policy | None) -> Models:
    """Freeze what the job freezes, and put gradients and optimizer around the rest.

    Raises:
        JobError: nothing left to train.
    """
    actor.freeze(spec.model.freeze)
    if not any(parameter.requires_grad for parameter in actor.parameters()):
        raise JobError.at("spec.model.freeze", "everything is frozen, so there is nothing to train; leave a part out")
    if reference is not None:
        reference.requires_grad_(False)
    gradients = Gradients(actor.named_parameters())
    optimizer = StreamedAdamW if spec.memory.optimizer == "host" else MasterAdamW
    return Models(actor, gradients, optimizer(gradients, spec.training.optimizer), reference)


def _load(spec: JobSpec, field: str, folder: str) -> Policy:
    _refuse_missing(field, Path(folder), "*.safetensors")
    try:
        return load_policy(folder, precision(spec), recompute(spec), device())
    except ValueError as error:
        raise JobError.at(field, str(error)) from None


def build_rollout(spec: JobSpec, models: Models, version: int = 0) -> Rollout:
    """vLLM on the actor's weights, or saved rollouts where ``rollout.replay`` names them.

    ``version`` is the number of weight versions that the run has published before.
    """
    engine = _replay(spec.rollout.replay) if spec.rollout.replay is not None else _engine(spec, models)
    engine.version = version
    return engine


def _replay(path: str) -> ReplayEngine:
    try:
        return ReplayEngine(read_rollouts(path))
    except ReplayError as error:
        raise JobError.at("spec.rollout.replay", str(error).removeprefix("rollout.replay: ")) from None


def _engine(spec: JobSpec, models: Models) -> RolloutEngine:
    longest = spec.data.max_prompt_tokens + spec.rollout.max_tokens
    sequences = min(_MOST_SEQUENCES, spec.training.prompts_per_step * spec.algorithm.group_size)
    return RolloutEngine(
        spec.model.path,
        share_weights(models.actor.language, models.actor.visual),
        dtype=precision(spec),
        max_model_len=longest,
        max_num_seqs=sequences,
        kv_cache_bytes=_kv_bytes(models.actor.shape, precision(spec), longest, sequences),
        seed=spec.training.seed,
        stall_seconds=spec.rollout.stall_seconds,
    )


def _kv_bytes(shape: ModelShape, dtype: torch.dtype, longest: int, sequences: int) -> int:
    """What all sequences need at their longest, up to a bound; above it the engine queues."""
    token = 2 * shape.layers * shape.kv_heads * shape.head_dim * dtype.itemsize
    bound = _GPU_KV_BYTES if device() == "cuda" else _CPU_KV_BYTES
    return max(token * longest, min(bound, token * longest * sequences))


def sampling(spec: JobSpec) -> Sampling:
    """How the job samples; ``rollout.stop`` must be resolved (:func:`resolved`)."""
    return Sampling(
        temperature=spec.rollout.temperature,
        max_tokens=spec.rollout.max_tokens,
        stop_token_ids=tuple(stop for stop in spec.rollout.stop if isinstance(stop, int)),
        stop=tuple(stop for stop in spec.rollout.stop if isinstance(stop, str)),
    )
