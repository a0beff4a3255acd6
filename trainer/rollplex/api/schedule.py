"""``spec.schedule``: what may run while the engine decodes. The mathematics is the same in every mode."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rollplex.api.base import IntOrAuto, Section


class ScheduleSpec(Section):
    """The order of work on the lanes."""

    mode: Literal["serial", "overlap", "stream"] = Field(
        "stream",
        description=(
            "serial: phase after phase; overlap: prefixes under decode; stream: also suffixes and prefix backwards of "
            "finished groups."
        ),
    )
    share_prefix: bool = Field(
        True, description="Compute a prefix once for its group; false is the per-sample baseline and needs mode serial."
    )
    run_ahead: Annotated[int | Literal["auto"], IntOrAuto(1, 65536)] = Field(
        "auto", description="Groups that may hold their prefix's graph before their suffix comes."
    )
    decode_sms: Annotated[int | Literal["auto"], IntOrAuto(1, 1024)] = Field(
        "auto", alias="decodeSMs", description="SMs of a GPU that are kept for decoding."
    )
    deterministic: bool = Field(
        False, description="Fixed packing and order of addition, so that stream is bit-reproducible on CPU too."
    )
