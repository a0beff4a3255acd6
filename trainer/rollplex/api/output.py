"""``spec.checkpoint``, ``spec.evaluation``, ``spec.tracking``: what a run leaves behind."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rollplex.api.base import FilePath, Section


class CheckpointSpec(Section):
    """When and where the run's state is saved."""

    path: FilePath | None = Field(
        None,
        description="Folder of checkpoints, by default runs/NAME/checkpoints; where set, the run folder is PATH/run.",
    )
    every_steps: int = Field(20, description="Steps between two checkpoints.", ge=1, le=1000000)
    keep_last: int = Field(3, description="Newest checkpoints that are kept.", ge=1, le=10000)
    keep_best: int = Field(1, description="Best checkpoints by held-out reward that are kept too.", ge=0, le=10000)


class EvaluationSpec(Section):
    """Scores on prompts that are not trained on."""

    data: FilePath = Field(
        description="The held-out set, in the format of data.train.", examples=["/data/validation.jsonl"]
    )
    every_steps: int = Field(
        20, description="Steps between two evaluations; the last step is always evaluated.", ge=1, le=1000000
    )
    samples: int = Field(
        4, description="Responses sampled for each held-out prompt, at rollout.temperature.", ge=1, le=1024
    )
    greedy: bool = Field(
        True, description="Also answer every prompt once greedily: the likeliest token each time, no sampling."
    )
    pass_reward: float = Field(
        1.0,
        description="Reward from which on a response counts as passed, for pass@k.",
        ge=-1000000,
        le=1000000,
    )
    blank_frames: bool = Field(
        False,
        description=(
            "Score the set a second time with blanked frames: what is left is what the model answers without seeing."
        ),
    )


class WandbSpec(Section):
    """Weights & Biases."""

    project: str = Field(description="Name of the project.", examples=["clevrer"], min_length=1, max_length=128)
    mode: Literal["online", "offline"] = Field(
        "online", description="offline writes a folder that can be synced later."
    )


class TrackingSpec(Section):
    """Trackers; metrics.jsonl is always written."""

    tensorboard: bool = Field(True, description="Write TensorBoard events into the run folder.")
    wandb: WandbSpec | None = Field(None, description="Also report to Weights & Biases.")
