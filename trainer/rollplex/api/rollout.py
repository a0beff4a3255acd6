"""``spec.rollout``: sampling from the one policy, softmax(logits / temperature)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rollplex.api.base import FilePath, Items, Section, TokenOrText, WayOut

_OTHER_POLICY = (
    "refused for training: the engine would sample from another policy than softmax(logits / temperature), "
    "which the trainer differentiates; leave it out"
)

# Keys that engines know and users will try. They are no fields: nothing could be done with them (one policy).
REFUSED: dict[str, str] = {
    **dict.fromkeys(
        ("topP", "topK", "minP", "logitBias", "repetitionPenalty", "presencePenalty", "frequencyPenalty"), _OTHER_POLICY
    ),
    "lora": "refused for training: the rollout reads the actor's own weights, and an adapter would change the policy; "
    "leave it out",
    "quantization": "refused for training: quantised weights are another policy than the trained one; leave it out",
}


class RolloutSpec(Section):
    """How responses are sampled."""

    temperature: Annotated[
        float,
        Field(ge=0.01, le=10),
        WayOut(
            "vLLM raises colder ones to it, which would be another policy than the trainer's (and at 0 all responses "
            "of a group are the same one)"
        ),
    ] = Field(1.0, description="T of the policy softmax(logits / T), in engine, actor and reference alike.")
    max_tokens: int = Field(512, description="Tokens of a response at most.", ge=1, le=1048576)
    stop: Items[Annotated[int | str, TokenOrText()]] = Field(
        (),
        description="Texts or token ids that end a response, beside the model's own end tokens.",
        max_length=64,
    )
    prefix_from: Literal["engine", "actor"] = Field(
        "engine", description="Who computes a prompt's prefix for decoding; actor hands its boundary KV to the engine."
    )
    parity_every_steps: int = Field(
        50, description="Rollout and trainer logprobs are compared at step 1 and every so many steps.", ge=1, le=1000000
    )
    replay: FilePath | None = Field(
        None, description="Folder of saved rollouts that are fed back in the engine's place; nothing is sampled."
    )
    stall_seconds: float = Field(
        300.0, description="A request of the engine without a new token for so long fails the step.", gt=0, le=86400
    )
