"""CEL of the rules about files on volumes."""

from __future__ import annotations

from rollplex.api.cel_text import Cel, literal, say, words
from rollplex.api.cluster import TAKEN_PATHS
from rollplex.api.cluster_rules import (
    checkpoint_outlives_its_pod,
    files_lie_on_volumes,
    volumes_leave_taken_paths,
)
from rollplex.api.mounts import DOTTED

_CONTAINERS = "self.podTemplate.spec.containers"
_MOUNTED = "self.volumes.map(v, v.path)"
_CHECKPOINT = "self.checkpoint.path"
_PYTHON = "r.python"


def _under(file: str, mount: str) -> str:
    # behind a file of a reward stands its function
    ends = ["/", ":"] if file == _PYTHON else ["/"]
    inside = " || ".join(f"{file}.startsWith({mount} + {literal(end)})" for end in ends)
    return f"({inside})" if file == _PYTHON else f"({file} == {mount} || {inside})"


def _on_template(file: str) -> str:
    """Whether a mount of the template covers a file."""
    return (
        f"(has(self.podTemplate.spec) && has({_CONTAINERS}) && {_CONTAINERS}.exists(c, has(c.name) && "
        'c.name == "trainer" && has(c.volumeMounts) && c.volumeMounts.exists(m, has(m.mountPath) && '
        f"{_under(file, 'm.mountPath')})))"
    )


def _covered(file: str) -> str:
    return f"(self.volumes.exists(v, {_under(file, 'v.path')}) || {_on_template(file)})"


# The innermost volume can be written: none that cannot lies deeper. What the template mounts there, the operator sees.
_WRITABLE = (
    f"!self.volumes.exists(v, v.readOnly && {_under(_CHECKPOINT, 'v.path')} && !self.volumes.exists(w, !w.readOnly && "
    f"size(w.path) > size(v.path) && {_under(_CHECKPOINT, 'w.path')})) || {_on_template(_CHECKPOINT)}"
)


def _placed(file: str) -> str:
    return f'{file}.startsWith("/") && !{file}.matches({literal(DOTTED)}) && {_covered(file)}'


def _misplaced(file: str) -> str:
    relative = say('"{}" is relative; on the cluster write an absolute path under one of spec.volumes', file)
    dotted = say("\"{}\" has '.', '..' or an empty part in it; write a plain absolute path", file)
    nowhere = say('"{}" lies on no volume (mounted: {}); add its claim to spec.volumes', file, _MOUNTED)
    return f'!{file}.startsWith("/") ? {relative} : {file}.matches({literal(DOTTED)}) ? {dotted} : {nowhere}'


def _file(path: str, *, optional: bool = False) -> Cel:
    file = f"self{path}"
    outer = "" if not optional else f"!has({file}) || "
    return Cel(f"{outer}({_placed(file)})", _misplaced(file), path)


FILE_RULES = {
    files_lie_on_volumes: (
        _file(".model.path"),
        Cel(
            f'self.model.reference == "initial" || ({_placed("self.model.reference")})',
            _misplaced("self.model.reference"),
            ".model.reference",
        ),
        _file(".data.train"),
        Cel(
            f"self.reward.all(r, !has(r.python) || ({_placed(_PYTHON)}))",
            say(
                "{}: the file of a python reward must be an absolute path, without '.', '..' or an empty part, on a "
                "volume (mounted: {}); add its claim to spec.volumes",
                "self.reward.filter(r, has(r.python)).map(r, r.python)",
                _MOUNTED,
            ),
            ".reward",
        ),
        _file(".rollout.replay", optional=True),
        Cel(
            f"!has(self.evaluation) || ({_placed('self.evaluation.data')})",
            _misplaced("self.evaluation.data"),
            ".evaluation.data",
        ),
        _file(".checkpoint.path", optional=True),
    ),
    volumes_leave_taken_paths: (
        Cel(
            f"!(self.path in {words(TAKEN_PATHS)})",
            say("{} is taken in every rank container; choose another path", "self.path"),
            ".path",
            at="spec.volumes[]",
        ),
    ),
    checkpoint_outlives_its_pod: (
        Cel(
            "has(self.checkpoint.path)",
            say("is missing; on the cluster it must lie on a volume, or a restart loses the run"),
            ".checkpoint.path",
        ),
        Cel(
            f"!has({_CHECKPOINT}) || {_WRITABLE}",
            say('"{}" lies on a read-only volume; take readOnly off', _CHECKPOINT),
            ".checkpoint.path",
        ),
    ),
}
