"""An optimizer's state, out and in: the next updates are the same bits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from rollplex.memory.gradients import Gradients
from rollplex.memory.optimizer import MasterAdamW
from tests.unit.memory.test_optimizer import model, push, spec


def update(parameters: dict[str, nn.Parameter], optimizer: MasterAdamW, gradients: Gradients, step: int) -> None:
    push(parameters, step, skip="one" if step < 3 else "")  # one parameter gets its first gradient late
    optimizer.step(gradients)
    gradients.clear()


def built(dtype: torch.dtype) -> tuple[dict[str, nn.Parameter], MasterAdamW, Gradients]:
    parameters = model(dtype)
    gradients = Gradients(parameters.items())
    return parameters, MasterAdamW(gradients, spec(weightDecay=0.1, warmupSteps=4)), gradients


def state(parameters: dict[str, nn.Parameter], optimizer: MasterAdamW) -> dict[str, torch.Tensor]:
    every = {**optimizer.tensors(), **{f"parameter {n}": p.detach() for n, p in parameters.items()}}
    return {name: tensor.clone() for name, tensor in every.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("saved", [0, 1, 3])
def test_saved_and_loaded_equals_straight(dtype: torch.dtype, saved: int) -> None:
    """Case 47: 3 steps + save + load + 2 steps against 5 straight: masters, moments, counter and rate."""
    straight = built(dtype)
    for step in range(5):
        update(*straight, step)
    first = built(dtype)
    for step in range(saved):
        update(*first, step)
    kept = state(first[0], first[1])
    second = built(dtype)
    with torch.no_grad():
        for name, parameter in second[0].items():
            parameter.copy_(kept[f"parameter {name}"])
    second[1].load((name, tensor) for name, tensor in kept.items() if not name.startswith("parameter "))
    for step in range(saved, 5):
        update(*second, step)
    ours, theirs = state(*second[:2]), state(*straight[:2])
    assert ours.keys() == theirs.keys()
    assert int(ours["steps"]) == 5
    assert "one/exp_avg" in ours
    assert ("matrix/master" in ours) == (dtype == torch.bfloat16)
    for name in ours:
        assert torch.equal(ours[name], theirs[name]), name


def test_loaded_state_is_a_copy() -> None:
    parameters, optimizer, gradients = built(torch.float32)
    update(parameters, optimizer, gradients, 0)
    kept = {name: tensor.clone() for name, tensor in optimizer.tensors().items()}
    other = built(torch.float32)
    other[1].load(kept.items())
    before = {name: tensor.clone() for name, tensor in kept.items()}
    update(*other, 1)
    assert all(torch.equal(kept[name], before[name]) for name in kept)


def renamed(kept: dict[str, torch.Tensor]) -> None:
    kept["other/exp_avg"] = kept.pop("matrix/exp_avg")


def misshaped(kept: dict[str, torch.Tensor]) -> None:
    kept["matrix/exp_avg"] = torch.zeros(7, 4)


def without_master(kept: dict[str, torch.Tensor]) -> None:
    del kept["vector/master"]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (renamed, r"'other/exp_avg' belongs to no trained parameter"),
        (misshaped, r"'matrix/exp_avg' is \(7, 4\), not \(7, 5\)"),
        (without_master, r"lacks 'vector/master'"),
    ],
)
def test_state_of_other_parameters_is_refused(spoil: Callable[[dict[str, torch.Tensor]], None], said: str) -> None:
    parameters, optimizer, gradients = built(torch.bfloat16)
    update(parameters, optimizer, gradients, 0)
    kept = dict(optimizer.tensors())
    spoil(kept)
    with pytest.raises(ValueError, match=said):
        built(torch.bfloat16)[1].load(kept.items())


def test_state_is_of_exactly_what_requires_gradients() -> None:
    """Case 51: a frozen parameter has no state, and keeps its bits whatever the weight decay."""
    parameters = model(torch.bfloat16)
    parameters["vector"].requires_grad_(False)
    gradients = Gradients(parameters.items())
    optimizer = MasterAdamW(gradients, spec(weightDecay=0.5, learningRate=0.1))
    before = parameters["vector"].detach().clone()
    push(parameters, 0, skip="vector")
    optimizer.step(gradients)
    owners = {name.rpartition("/")[0] for name in optimizer.tensors()} - {""}
    assert owners == {"matrix", "one"}
    assert torch.equal(parameters["vector"], before)
