"""``spec.data``: the prompts, and what becomes of a video before a model sees it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rollplex.api.base import FilePath, IntOrAuto, Quantity, Section

Column = Annotated[str, Field(min_length=1, max_length=253)]


class ColumnsSpec(Section):
    """Names of a dataset's columns, mapped by hand; dots reach into a nested one (``reward_model.ground_truth``)."""

    prompt: Column = Field(description="Column of the prompt, a text or a list of messages.", examples=["prompt"])
    answer: Column | None = Field(None, description="Column of the right answer, handed to the rewards.")
    images: Column | None = Field(None, description="Column of the images, by path or as bytes.")
    videos: Column | None = Field(None, description="Column of the videos, by path or as bytes.")
    id: Column | None = Field(None, description="Column of a unique id; without it a row is known by its number.")


class VideoSpec(Section):
    """The budget of a video: how many frames it gives, and how large they are."""

    fps: float = Field(2.0, description="Frames taken from a second of video.", gt=0, le=240)
    max_frames: int = Field(
        32, description="Frames of a video at most; a longer one is sampled thinner.", ge=1, le=8192
    )
    max_pixels_per_frame: int = Field(
        200704,
        description="Pixels of a frame after resizing at most (200704 is 256 tokens of Qwen2.5-VL).",
        ge=1,
        le=16777216,
    )


class CacheSpec(Section):
    """Decoded frames on disk, found again by their file's content, the video budget and the model's pixel rules."""

    path: FilePath | None = Field(
        None,
        description="Folder of the cache, which runs may share. "
        "Default: media in $ROLLPLEX_CACHE, else in rollplex of the user's cache folder (~/.cache).",
    )
    max_bytes: Quantity = Field(
        "4Gi", description="Bytes that it may take; what was not used for longest makes room for the new."
    )


class DataSpec(Section):
    """Where prompts come from."""

    train: FilePath = Field(
        description="The training set: a .jsonl, .json or .parquet file, or a folder of one kind of them.",
        examples=["/data/train.jsonl"],
    )
    format: Literal["rollplex", "roll", "verl", "easyr1"] = Field(
        "rollplex",
        description="Whose columns the set has: ours, or those that another trainer writes (docs/data.md).",
    )
    columns: ColumnsSpec | None = Field(None, description="Column names by hand, in the place of a format.")
    video: VideoSpec = Field(default_factory=VideoSpec, description="Frame and pixel budget of a video.")
    max_prompt_tokens: int = Field(
        8192,
        description="Tokens of a prompt at most, vision tokens included; longer ones are skipped and counted, not cut.",
        ge=1,
        le=1048576,
    )
    group_by_media: bool = Field(
        False, description="Put questions about one video into one batch, where they fit: it is encoded once."
    )
    cache: CacheSpec = Field(default_factory=CacheSpec, description="Decoded frames, kept on disk.")
    decode_timeout_seconds: float = Field(
        20.0, description="A video that takes longer to decode is skipped and counted.", gt=0, le=3600
    )
    workers: Annotated[int | Literal["auto"], IntOrAuto(1, 256)] = Field(
        "auto", description="Processes that decode media; auto takes a few of the CPUs."
    )
