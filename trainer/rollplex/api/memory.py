"""``spec.memory``: what may be in HBM, and where the rest goes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rollplex.api.base import Quantity, Section, quantity_bytes


class MemorySpec(Section):
    """The budget of one rank, and how it is kept."""

    budget: Quantity | None = Field(None, description="Memory of a GPU that the plan may use, such as 76Gi.")
    activations: Literal["auto", "keep", "offload", "recompute"] = Field(
        "auto", description="What becomes of saved activations until their backward."
    )
    optimizer: Literal["auto", "hbm", "host"] = Field("auto", description="Where master weights and moments live.")

    @property
    def budget_bytes(self) -> int | None:
        """The budget in bytes; None where the job sets none."""
        return None if self.budget is None else quantity_bytes(self.budget)
