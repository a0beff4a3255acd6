"""The streamed AdamW: the numbers of the one that keeps its state beside the parameters."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rollplex.memory.gradients import Gradients
from rollplex.memory.optimizer import MasterAdamW
from rollplex.memory.streamed import StreamedAdamW
from tests.unit.memory.test_optimizer import model, push, spec

FIELDS = {"weightDecay": 0.1, "betas": [0.9, 0.95], "warmupSteps": 3}


@settings(max_examples=40, deadline=None)
@given(
    chunk=st.integers(1, 40),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    decay=st.sampled_from([0.0, 0.1]),
    skips=st.lists(st.sampled_from(["", "matrix", "vector"]), min_size=1, max_size=6),
)
def test_streamed_is_the_resident_one_bit_for_bit(
    chunk: int, dtype: torch.dtype, decay: float, skips: list[str]
) -> None:
    fields = spec(**FIELDS | {"weightDecay": decay})
    sides = []
    for make in (lambda g: MasterAdamW(g, fields), lambda g: StreamedAdamW(g, fields, chunk=chunk)):
        parameters = model(dtype)
        gradients = Gradients(parameters.items())
        optimizer = make(gradients)
        rates = []
        for step, skip in enumerate(skips):
            push(parameters, step, skip)
            rates.append(optimizer.step(gradients))
            gradients.clear()
        sides.append((parameters, optimizer.tensors(), rates))
    (theirs, state, rates), (ours, own_state, own_rates) = sides
    assert rates == own_rates
    assert state.keys() == own_state.keys()
    for name, parameter in theirs.items():
        assert torch.equal(ours[name], parameter), name
    for name, tensor in state.items():
        assert torch.equal(own_state[name], tensor), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("to_host", [True, False])
def test_state_moves_between_host_and_device_in_a_checkpoint(dtype: torch.dtype, to_host: bool) -> None:
    """3 steps, save, load into the other kind, 3 steps: as 6 steps straight."""
    fields = spec(**FIELDS)
    kinds = [MasterAdamW, StreamedAdamW] if to_host else [StreamedAdamW, MasterAdamW]
    straight = model(dtype)
    gradients = Gradients(straight.items())
    optimizer = MasterAdamW(gradients, fields)
    for step in range(6):
        push(straight, step)
        optimizer.step(gradients)
        gradients.clear()

    parameters = model(dtype)
    saved: dict[str, torch.Tensor] = {}
    for half, kind in enumerate(kinds):
        parameters = {name: nn.Parameter(value.detach().clone()) for name, value in parameters.items()}
        gradients = Gradients(parameters.items())
        part = kind(gradients, fields)
        if saved:
            part.load(saved.items())
        for step in range(3 * half, 3 * half + 3):
            push(parameters, step)
            part.step(gradients)
            gradients.clear()
        saved = {name: tensor.clone() for name, tensor in part.tensors().items()}
    for name, parameter in straight.items():
        assert torch.equal(parameters[name], parameter), name
    for name, tensor in optimizer.tensors().items():
        assert torch.equal(saved[name], tensor), name


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"other/exp_avg": torch.zeros(1)}, "'other/exp_avg' belongs to no trained parameter"),
        ({"vector/momentum": torch.zeros(11)}, "'vector/momentum' belongs to no trained parameter"),
        ({"vector/exp_avg": torch.zeros(3)}, r"'vector/exp_avg' is \(3,\), not \(11,\)"),
        ({"steps": torch.tensor(1)}, "lacks 'matrix/master'"),
    ],
)
def test_state_of_another_run_is_refused(tensors: dict[str, torch.Tensor], message: str) -> None:
    optimizer = StreamedAdamW(Gradients(model(torch.bfloat16).items()), spec())
    with pytest.raises(ValueError, match=message):
        optimizer.load(tensors.items())


def test_device_holds_no_more_than_the_working_set() -> None:
    parameters = {"w": nn.Parameter(torch.zeros(1000, dtype=torch.bfloat16))}
    optimizer = StreamedAdamW(Gradients(parameters.items()), spec(), chunk=10)
    assert sum(tensor.numel() for buffers in optimizer._sets for tensor in buffers.tensors) == 90


def test_parameter_in_pieces_is_refused() -> None:
    weight = nn.Parameter(torch.zeros(4, 6).t())
    with pytest.raises(ValueError, match="'w' is not contiguous"):
        StreamedAdamW(Gradients([("w", weight)]), spec())
