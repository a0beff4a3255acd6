"""``spec.reward``: the parts of a weighted sum."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from rollplex.api.base import Section, WayOut


class RewardSpec(Section):
    """One verifier: a named one, or a Python function of the user's."""

    name: Literal["exact", "choice", "numeric", "iou", "format", "length"] | None = Field(
        None, description="A verifier of ours; give either name or python."
    )
    python: Annotated[
        str | None,
        Field(pattern=r"^.+\.py:[A-Za-z_][A-Za-z0-9_]*$", max_length=4096),
        WayOut("write FILE.py:FUNCTION, such as /data/rewards.py:grounded"),
    ] = Field(None, description="A function in a file, as FILE.py:FUNCTION; give either name or python.")
    weight: float = Field(
        1.0, description="Factor of this part in the sum; below 0 it is a penalty.", ge=-1000000, le=1000000
    )
    timeout_seconds: float = Field(
        10.0,
        description="A call of a Python function that takes longer is killed, scored 0 and counted.",
        gt=0,
        le=3600,
    )
    options: dict[str, Any] = Field(default_factory=dict, description="Parameters of a named verifier.")
