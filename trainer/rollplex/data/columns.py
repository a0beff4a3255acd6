"""Which columns of a dataset hold what: ours, and those that ROLL, verl and EasyR1 write.

A preset names alternatives where that trainer reads several; a row has one of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rollplex.api.data import DataSpec

Markers = Literal["never", "with-media", "with-column", "images-always"]


@dataclass(frozen=True)
class Columns:
    """Names of columns; dots reach into nested ones. An empty tuple: this set has none.

    ``markers`` says in which rows a ``<image>`` or ``<video>`` in a text stands for a medium; elsewhere it is text.

    - ``never``: only structured parts are media.
    - ``with-media``: in rows that have any image or video (verl).
    - ``with-column``: in rows that have the column of its kind (EasyR1).
    - ``images-always``: ``<image>`` in every row, ``<video>`` in rows that have videos (ROLL).
    """

    prompt: tuple[str, ...]
    answer: tuple[str, ...]
    images: tuple[str, ...] = ()
    videos: tuple[str, ...] = ()
    id: tuple[str, ...] = ()
    markers: Markers = "with-media"


PRESETS = {
    "rollplex": Columns(prompt=("messages",), answer=("answer",), id=("id",), markers="never"),
    "roll": Columns(
        prompt=("messages", "prompt"),
        answer=("reward_model.ground_truth", "ground_truth"),
        images=("images",),
        videos=("videos",),
        id=("id",),
        markers="images-always",
    ),
    "verl": Columns(
        prompt=("prompt",),
        answer=("reward_model.ground_truth",),
        images=("images",),
        videos=("videos",),
        markers="with-media",
    ),
    "easyr1": Columns(
        prompt=("problem", "prompt"),
        answer=("answer",),
        images=("images",),
        videos=("videos",),
        markers="with-column",
    ),
}


def columns_of(data: DataSpec) -> Columns:
    """What a job says: ``data.columns`` by hand, or the preset that ``data.format`` names."""
    given = data.columns
    if given is None:
        return PRESETS[data.format]

    def names(name: str | None) -> tuple[str, ...]:
        return () if name is None else (name,)

    return Columns(
        prompt=(given.prompt,),
        answer=names(given.answer),
        images=names(given.images),
        videos=names(given.videos),
        id=names(given.id),
    )
