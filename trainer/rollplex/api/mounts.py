"""Which files a job names, and which mounts of its pods they would lie on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rollplex.api.job import JobSpec

# A path with '.', '..' or an empty part: where it lies cannot be told from its text alone.
DOTTED = r"(^|/)\.{1,2}(/|$)|//"


@dataclass(frozen=True, slots=True)
class Mount:
    """A place in the file system of every rank container that is not the image's."""

    path: str
    read_only: bool


def files_of(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Every file or folder that the job names, as (field, path)."""
    yield "spec.model.path", spec.model.path
    if spec.model.reference != "initial":
        yield "spec.model.reference", spec.model.reference
    yield "spec.data.train", spec.data.train
    for index, reward in enumerate(spec.reward):
        if reward.python is not None:
            yield f"spec.reward.{index}.python", reward.python.rpartition(":")[0]
    if spec.rollout.replay is not None:
        yield "spec.rollout.replay", spec.rollout.replay
    if spec.evaluation is not None:
        yield "spec.evaluation.data", spec.evaluation.data
    if spec.checkpoint.path is not None:
        yield "spec.checkpoint.path", spec.checkpoint.path


def mounts_of(spec: JobSpec) -> list[Mount]:
    """The job's volumes, and what its pod template mounts into the container ``trainer``."""
    own = [Mount(volume.path, volume.read_only) for volume in spec.volumes]
    pod = spec.pod_template.get("spec")
    for container in _mappings(pod.get("containers") if isinstance(pod, Mapping) else None):
        if container.get("name") == "trainer":
            for mount in _mappings(container.get("volumeMounts")):
                own.append(Mount(str(mount.get("mountPath")), mount.get("readOnly") is True))
    return own


def covering(mounts: Sequence[Mount], file: str) -> Mount | None:
    """The innermost mount that a file (a plain path) lies on; None where it lies in the image."""
    over = [mount for mount in mounts if file == mount.path or file.startswith(mount.path.rstrip("/") + "/")]
    return max(over, key=lambda mount: len(mount.path), default=None)


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    """The mappings in a list of a free-form template; nothing where it is something else."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
