"""``status``: what the operator reports of a job. The models give the CRD its schema; the operator writes plain data.

Types only, no bounds: a report that the server refuses would leave the user with none.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rollplex.api.base import Items, Section

# RFC 3339 with seconds, such as 2026-12-01T01:02:03Z
Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


class ConditionStatus(Section):
    """One of Kubernetes' conditions."""

    type: str = Field(
        description=(
            "Admitted, PodsCreated, Running, Suspended, Complete, Failed, NumaAligned or CheckpointSaved "
            "(docs/conditions.md)."
        ),
        min_length=1,
        max_length=316,
    )
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds.")
    reason: str = Field(description="Why, in one word for programs.", min_length=1, max_length=1024)
    message: str = Field(description="Why, for people.", max_length=32768)
    last_transition_time: Time = Field(description="When its status changed last.")
    observed_generation: int | None = Field(None, description="Generation of the job that it speaks about.")


class RejectionsStatus(Section):
    """Pods that a node's kubelet refused."""

    count: int = Field(description="How many, since the pods last ran.")
    time: Time = Field(description="When the last one was.")


class CheckpointStatus(Section):
    """The newest complete checkpoint."""

    step: int = Field(description="Step after which it was saved.")
    time: Time | None = Field(None, description="When the operator learnt of it.")


class OverlapStatus(Section):
    """How much compute ran under decoding, over the last 10 steps."""

    hidden_percent: float | None = Field(
        None, description="Hidden / (hidden + exposed) seconds of compute, in percent."
    )
    saved_percent: float | None = Field(None, description="Saved / (step + saved) seconds, in percent.")


class NumaStatus(Section):
    """What auto became."""

    pinning: str | None = Field(None, description="container, process or none.")
    gpu_allocation: str | None = Field(None, description="dra or devicePlugin.")


class JobStatus(Section):
    """Where the job is."""

    phase: str | None = Field(
        None,
        description="Pending, Starting, Running, Restarting, Suspending, Suspended, Complete or Failed; follows from "
        "the conditions.",
    )
    step: int | None = Field(None, description="Last committed step.")
    target_step: int | None = Field(None, description="Step at which the job is complete.")
    attempt: int | None = Field(
        None, description="Number of the set of pods: those of a lower one are on their way out."
    )
    restarts: int | None = Field(None, description="Restarts of all kinds.")
    restarts_counted_towards_max: int | None = Field(
        None, description="Restarts after faults, which runPolicy.maxRestarts limits; disruptions are not among them."
    )
    in_place_restarts: int | None = Field(None, description="Restarts of this attempt's containers in their pods.")
    rejections: RejectionsStatus | None = Field(None, description="Pods that a node's kubelet refused.")
    checkpoint: CheckpointStatus | None = Field(None, description="The newest complete checkpoint.")
    overlap: OverlapStatus | None = Field(None, description="Compute under decoding, over the last 10 steps.")
    reward: float | None = Field(None, description="Mean reward of the last step.")
    numa: NumaStatus | None = Field(None, description="Pinning and GPU allocation as chosen.")
    gang: str | None = Field(None, description="Who starts all pods or none, as chosen.")
    restart: str | None = Field(
        None,
        description="newPods where runPolicy.restart is inPlace and the nodes' kubelets cannot do that.",
    )
    nodes: str | None = Field(None, description="Pods that run, of all: 3/4.")
    start_time: Time | None = Field(None, description="When all pods of the job ran for the first time.")
    completion_time: Time | None = Field(None, description="When the job was complete or failed.")
    progress_time: Time | None = Field(None, description="When progress was read last.")
    observed_generation: int | None = Field(None, description="Generation of the job that this speaks about.")
    conditions: Items[ConditionStatus] = Field((), description="Conditions, one of each type.", max_length=32)
