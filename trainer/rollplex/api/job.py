"""RollplexJob, apiVersion rollplex.io/v1alpha1: one document for ``rollplex train`` and for ``kubectl apply``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from rollplex.api.algorithm import AlgorithmSpec
from rollplex.api.base import Items, Section, WayOut
from rollplex.api.cluster import EnvFromSpec, HardwareSpec, NumaSpec, RunPolicySpec, SchedulingSpec, VolumeSpec
from rollplex.api.data import DataSpec
from rollplex.api.memory import MemorySpec
from rollplex.api.model import ModelSpec
from rollplex.api.output import CheckpointSpec, EvaluationSpec, TrackingSpec
from rollplex.api.parallelism import ParallelismSpec
from rollplex.api.reward import RewardSpec
from rollplex.api.rollout import RolloutSpec
from rollplex.api.schedule import ScheduleSpec
from rollplex.api.training import TrainingSpec

API_VERSION: Literal["rollplex.io/v1alpha1"] = "rollplex.io/v1alpha1"
KIND: Literal["RollplexJob"] = "RollplexJob"


class Metadata(Section):
    """Kubernetes' object metadata, as far as a user writes it."""

    name: Annotated[
        str,
        Field(pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=50),
        WayOut("write up to 50 lower-case letters, digits and '-', beginning with a letter"),
    ] = Field(
        description="Name of the job, and of its run folder; short, since pods append to it.", examples=["clevrer"]
    )
    namespace: Annotated[
        str,
        Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63),
        WayOut("write up to 63 lower-case letters, digits and '-'"),
    ] = Field("default", description="Namespace on the cluster.")
    labels: dict[str, str] = Field(default_factory=dict, description="Kubernetes labels.")
    annotations: dict[str, str] = Field(default_factory=dict, description="Kubernetes annotations.")


class JobSpec(Section):
    """What to train, on what, how, and where."""

    model: ModelSpec = Field(description="Which weights.", examples=[{"path": "/models/Qwen2.5-VL-7B-Instruct"}])
    data: DataSpec = Field(description="The prompts.", examples=[{"train": "/data/train.jsonl"}])
    reward: Items[RewardSpec] = Field(
        (), description="Verifiers; the reward is their weighted sum. Only opd can do without.", max_length=16
    )
    algorithm: AlgorithmSpec = Field(default_factory=AlgorithmSpec, description="How rewards become a gradient.")
    rollout: RolloutSpec = Field(default_factory=RolloutSpec, description="How responses are sampled.")
    training: TrainingSpec = Field(description="Steps and optimizer.", examples=[{"steps": 500}])
    schedule: ScheduleSpec = Field(default_factory=ScheduleSpec, description="What runs while the engine decodes.")
    parallelism: ParallelismSpec = Field(default_factory=ParallelismSpec, description="Tensor degrees and placement.")
    precision: Literal["auto", "fp32", "bf16"] = Field(
        "auto",
        description="Of weights and activations; auto is bf16 on a GPU and fp32 on CPU. Masters are always fp32.",
    )
    memory: MemorySpec = Field(default_factory=MemorySpec, description="What may be in HBM.")
    checkpoint: CheckpointSpec = Field(default_factory=CheckpointSpec, description="Saving the run's state.")
    evaluation: EvaluationSpec | None = Field(
        None, description="Scores on held-out prompts; without it there are none."
    )
    tracking: TrackingSpec = Field(default_factory=TrackingSpec, description="Trackers.")
    image: str | None = Field(
        None, description="Trainer image; without it the operator's default.", min_length=1, max_length=512
    )
    nodes: int = Field(1, description="Nodes of the job, one pod each.", ge=1, le=4096)
    hardware: HardwareSpec = Field(default_factory=HardwareSpec, description="What a node offers.")
    numa: NumaSpec = Field(default_factory=NumaSpec, description="Pinning.")
    volumes: Items[VolumeSpec] = Field((), description="Claims mounted into every rank container.", max_length=64)
    env_from: Items[EnvFromSpec] = Field((), description="Environment from Secrets and ConfigMaps.", max_length=64)
    run_policy: RunPolicySpec = Field(default_factory=RunPolicySpec, description="Starting, restarting, stopping.")
    scheduling: SchedulingSpec = Field(default_factory=SchedulingSpec, description="Queue and gang.")
    pod_template: dict[str, Any] = Field(
        default_factory=dict,
        description='Strategic merge into the pods; its container "trainer" merges into every rank container.',
    )


class RollplexJob(Section):
    """The whole document."""

    api_version: Literal["rollplex.io/v1alpha1"] = Field(API_VERSION, description="Version of this format.")
    kind: Literal["RollplexJob"] = Field(KIND, description="Kind of object.")
    metadata: Metadata = Field(description="Name and place.", examples=[{"name": "clevrer"}])
    spec: JobSpec = Field(description="The job itself.")
