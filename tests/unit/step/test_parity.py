"""The check that engine and trainer have one policy, and what it says when they have not."""

from __future__ import annotations

from math import inf, nan

import pytest
import torch

from rollplex.api.errors import RunStopped
from rollplex.batch import Prompt, Response
from rollplex.step.parity import Parity

POSITIONS = torch.arange(4).expand(3, -1)
PROMPTS = [Prompt(f"row-{i}", (1, 2, 3, 4), POSITIONS) for i in range(3)]


class Engine:
    """Only the part of a rollout that says which position ids a prompt got."""

    def __init__(self, positions: torch.Tensor | None = POSITIONS) -> None:
        self._positions = positions

    def positions(self, prompt: Prompt) -> torch.Tensor | None:
        return self._positions


def response(group: int, sample: int, *logprobs: float) -> Response:
    return Response(group, sample, tuple(range(len(logprobs))), logprobs, "length")


def compared(*rows: tuple[int, int, list[float]]) -> tuple[Parity, dict[tuple[int, int], Response]]:
    """Parity of responses (group, sample, engine's minus trainer's log probability of each token)."""
    parity, responses = Parity(), {}
    for group, sample, differences in rows:
        responses[group, sample] = response(group, sample, *differences)
        parity.add(responses[group, sample], torch.zeros(len(differences)))
    return parity, responses


def enforce(
    parity: Parity,
    responses: dict[tuple[int, int], Response],
    precision: torch.dtype,
    engine: Engine | None = None,
) -> None:
    parity.enforce(7, precision, PROMPTS, responses, engine or Engine())  # type: ignore[arg-type]


def test_the_summary_is_of_all_tokens() -> None:
    parity, _ = compared((0, 0, [-0.1] * 18), (1, 1, [0.3, -0.5]))
    found = parity.summary()
    assert found == pytest.approx({"max": 0.5, "mean": (1.8 + 0.8) / 20, "p95": 0.3}, abs=1e-6)
    assert parity.differences.keys() == {(0, 0), (1, 1)}


def test_without_tokens_there_is_nothing_to_compare() -> None:
    assert Parity().summary() == {}
    enforce(Parity(), {}, torch.float32)


def test_float32_is_held_to_the_largest_difference() -> None:
    enforce(*compared((0, 0, [0.9e-4] * 5)), torch.float32)
    with pytest.raises(
        RunStopped, match=r"step 7: max \|logp_rollout - logp_trainer\| is 1\.10e-04, the limit is 0\.0001"
    ):
        enforce(*compared((0, 0, [0.0] * 1000), (1, 0, [1.1e-4])), torch.float32)


def test_bf16_is_held_to_the_mean() -> None:
    enforce(*compared((0, 0, [0.0] * 99 + [-1.9])), torch.bfloat16)
    with pytest.raises(RunStopped, match=r"mean .* is 2\.10e-02, the limit is 0\.02"):
        enforce(*compared((0, 0, [0.0] * 99 + [-2.1])), torch.bfloat16)


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bad", [nan, inf])
def test_what_is_no_number_is_broken(precision: torch.dtype, bad: float) -> None:
    with pytest.raises(RunStopped, match=r"is (nan|inf), the limit"):
        enforce(*compared((0, 0, [0.0, bad])), precision)


@pytest.mark.parametrize("bad", [nan, inf, 0.5])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_the_message_names_the_worst_sample_wherever_it_is(bad: float, at: int) -> None:
    rows = [(group, group, [1e-3] * 4) for group in range(3)]
    rows[at] = (at, at, [0.0, bad, 0.0])
    with pytest.raises(RunStopped, match=rf"prompt 'row-{at}' sample {at} \(3 tokens\)"):
        enforce(*compared(*rows), torch.float32)


def test_the_message_says_which_input_differs() -> None:
    broken = compared((2, 1, [0.5]))
    shifted = POSITIONS.clone()
    shifted[1, 2] += 3
    for engine, said in [
        (Engine(shifted), r"position ids differ first at token 2: engine \[2, 5, 2\], trainer \[2, 2, 2\]"),
        (Engine(POSITIONS[:, :3]), "the engine has 3 prompt tokens, the trainer 4"),
        (Engine(), "token ids and position ids agree: look at weights"),
        (Engine(None), r"no engine ran \(replay\)"),
    ]:
        with pytest.raises(RunStopped, match=said):
            enforce(*broken, torch.float32, engine)
