"""AdamW over float32 masters, against torch's own, and in place."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from rollplex.api.training import OptimizerSpec
from rollplex.memory.gradients import Gradients
from rollplex.memory.optimizer import MasterAdamW, learning_rate


def spec(**fields: Any) -> OptimizerSpec:
    return OptimizerSpec.model_validate({"learningRate": 1e-3, "warmupSteps": 0, **fields})


def model(dtype: torch.dtype) -> dict[str, nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    shapes = {"matrix": (7, 5), "vector": (11,), "one": (1,)}
    return {n: nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for n, shape in shapes.items()}


def push(parameters: dict[str, nn.Parameter], step: int, skip: str = "") -> None:
    """Gradients of a step by a backward, as large and as small as they come."""
    generator = torch.Generator().manual_seed(100 + step)
    for name, parameter in parameters.items():
        direction = torch.randn(parameter.shape, generator=generator) * 10.0 ** -(step % 4)
        if name != skip:
            (parameter * direction.to(parameter.dtype)).sum().backward()


def test_float32_is_torchs_adamw_bit_for_bit() -> None:
    ours, theirs = model(torch.float32), model(torch.float32)
    gradients = Gradients(ours.items())
    optimizer = MasterAdamW(gradients, spec(weightDecay=0.1, betas=[0.9, 0.95]))
    reference = torch.optim.AdamW(theirs.values(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    for step in range(6):
        push(ours, step)
        push(theirs, step)
        assert optimizer.step(gradients) == 1e-3
        reference.step()
        reference.zero_grad()
        gradients.clear()
        for name, parameter in ours.items():
            assert torch.equal(parameter, theirs[name]), (step, name)


def test_bf16_follows_a_float32_master() -> None:
    """Updates too small for bf16 are not lost: the master moves, and the parameter is always the master rounded."""
    ours = model(torch.bfloat16)
    exact = {name: nn.Parameter(parameter.detach().float()) for name, parameter in ours.items()}
    gradients = Gradients(ours.items())
    optimizer = MasterAdamW(gradients, spec(learningRate=1e-5))
    reference = torch.optim.AdamW(exact.values(), lr=1e-5, betas=(0.9, 0.95), weight_decay=0.0)
    for step in range(40):
        push(ours, step)
        optimizer.step(gradients)
        for name, gradient in gradients.items():
            exact[name].grad = gradient.clone()
        reference.step()
        gradients.clear()
        for name, parameter in ours.items():
            assert torch.equal(parameter, exact[name].bfloat16()), (step, name)


def test_bf16_moves_where_bf16_alone_would_stand_still() -> None:
    weight = nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    gradients = Gradients([("w", weight)])
    optimizer = MasterAdamW(gradients, spec(learningRate=1e-4))
    for _ in range(60):
        weight.sum().backward()
        optimizer.step(gradients)
        gradients.clear()
    assert float(weight[0].detach() - 1e-4) == float(weight[0].detach()), "one update is below bf16's resolution"
    assert weight.tolist() == [float(torch.tensor(1 - 60e-4).bfloat16())] * 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_learning_rate_of_nothing_changes_nothing(dtype: torch.dtype) -> None:
    """Weights of 5.0 are still 5.0, and so are their masters: the next update starts from there."""
    weight = nn.Parameter(torch.full((3,), 5.0, dtype=dtype))
    gradients = Gradients([("w", weight)])
    optimizer = MasterAdamW(gradients, spec(learningRate=0.0, weightDecay=0.5))
    for step in range(3):
        push({"w": weight}, step)
        assert optimizer.step(gradients) == 0.0
        gradients.clear()
    assert torch.equal(weight, torch.full((3,), 5.0, dtype=dtype))
    (master,) = optimizer._masters.values()
    assert torch.equal(master, torch.full((3,), 5.0))


def test_a_float32_parameter_is_its_own_master() -> None:
    """No second copy of the weights."""
    parameters = model(torch.float32)
    optimizer = MasterAdamW(Gradients(parameters.items()), spec())
    assert {n: m.data_ptr() for n, m in optimizer._masters.items()} == {n: p.data_ptr() for n, p in parameters.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_parameters_are_written_in_place_so_that_views_follow(dtype: torch.dtype) -> None:
    parameters = model(dtype)
    views = {name: parameter.detach().t() for name, parameter in parameters.items()}
    before = {name: view.clone() for name, view in views.items()}
    gradients = Gradients(parameters.items())
    optimizer = MasterAdamW(gradients, spec(learningRate=0.1))
    push(parameters, 0)
    optimizer.step(gradients)
    for name, parameter in parameters.items():
        assert torch.equal(views[name], parameter.t())
        assert not torch.equal(views[name], before[name])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_parameter_without_a_gradient_stays_and_does_not_decay(dtype: torch.dtype) -> None:
    parameters = model(dtype)
    gradients = Gradients(parameters.items())
    optimizer = MasterAdamW(gradients, spec(weightDecay=0.5, learningRate=0.1))
    push(parameters, 0)
    optimizer.step(gradients)
    gradients.clear()
    before = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    push(parameters, 1, skip="vector")
    optimizer.step(gradients)
    changed = {name for name, parameter in parameters.items() if not torch.equal(parameter, before[name])}
    assert changed == {"matrix", "one"}


@pytest.mark.parametrize(
    ("warmup", "rates"),
    [
        (0, [1.0, 1.0, 1.0, 1.0, 1.0]),
        (1, [1.0, 1.0, 1.0, 1.0, 1.0]),
        (4, [0.25, 0.5, 0.75, 1.0, 1.0]),
    ],
)
def test_the_learning_rate_warms_up(warmup: int, rates: list[float]) -> None:
    given = spec(learningRate=1.0, warmupSteps=warmup)
    assert [learning_rate(given, step) for step in range(1, 6)] == rates
    weight = nn.Parameter(torch.zeros(1))
    gradients = Gradients([("w", weight)])
    optimizer = MasterAdamW(gradients, given)
    weight.sum().backward()
    at = [(optimizer.step(gradients), weight.item()) for _ in range(5)]
    assert [rate for rate, _ in at] == rates
    # under a constant gradient Adam moves by the learning rate
    moved = [
        before - after for before, after in zip([0.0, *(value for _, value in at)], (v for _, v in at), strict=False)
    ]
    assert moved == pytest.approx(rates, rel=1e-3)
