"""The streamed AdamW with real streams: the numbers of the resident one, and copies both ways at once."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn

from rollplex.api.training import OptimizerSpec
from rollplex.memory.gradients import Gradients
from rollplex.memory.optimizer import MasterAdamW
from rollplex.memory.streamed import StreamedAdamW

pytestmark = pytest.mark.gpu
SPEC = OptimizerSpec.model_validate({"learningRate": 1e-3, "warmupSteps": 0, "weightDecay": 0.1})


def parameters(dtype: torch.dtype) -> dict[str, nn.Parameter]:
    generator = torch.Generator("cuda").manual_seed(0)
    shapes = {"matrix": (3001, 1009), "vector": (70001,), "one": (1,)}
    return {
        name: nn.Parameter(torch.randn(shape, generator=generator, device="cuda").to(dtype))
        for name, shape in shapes.items()
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_streamed_is_the_resident_one_bit_for_bit(dtype: torch.dtype) -> None:
    sides = []
    for make in (lambda g: MasterAdamW(g, SPEC), lambda g: StreamedAdamW(g, SPEC, chunk=100_003)):
        own = parameters(dtype)
        gradients = Gradients(own.items())
        optimizer = make(gradients)
        generator = torch.Generator("cuda").manual_seed(1)
        for _ in range(4):
            for parameter in own.values():
                direction = torch.randn(parameter.shape, generator=generator, device="cuda").to(dtype)
                (parameter * direction).sum().backward()
            optimizer.step(gradients)
            gradients.clear()
        sides.append((own, optimizer.tensors()))
    (theirs, state), (ours, own_state) = sides
    for name, parameter in theirs.items():
        assert torch.equal(ours[name], parameter), name
    for name, tensor in state.items():
        assert torch.equal(own_state[name].cpu(), tensor.cpu()), name


def test_streamed_update_runs_near_the_rate_of_the_link() -> None:
    """At least 85 % of what plain copies both ways at once reach in the same run."""
    count = 512 << 20
    weight = nn.Parameter(torch.zeros(count, dtype=torch.bfloat16, device="cuda"))
    gradients = Gradients([("w", weight)])
    optimizer = StreamedAdamW(gradients, SPEC)
    weight.grad = torch.ones_like(weight)
    gradients._sums["w"] = torch.randn(count, device="cuda")
    seconds = min(_timed(lambda: optimizer.step(gradients)) for _ in range(3))
    rate = 12 * count / seconds
    link = _duplex_rate()
    print(f"streamed AdamW: {seconds:.3f} s, {rate / 1e9:.1f} GB/s each way; link {link / 1e9:.1f} GB/s")
    assert rate >= 0.85 * link


def _duplex_rate() -> float:
    """Bytes a second each way of plain copies of 1 GiB, both at once."""
    size = 1 << 30
    host = [torch.empty(size, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
    device = [torch.empty(size, dtype=torch.uint8, device="cuda") for _ in range(2)]
    streams = [torch.cuda.Stream() for _ in range(2)]

    def both() -> None:
        with torch.cuda.stream(streams[0]):
            device[0].copy_(host[0], non_blocking=True)
        with torch.cuda.stream(streams[1]):
            host[1].copy_(device[1], non_blocking=True)
        torch.cuda.synchronize()

    return size / min(_timed(both) for _ in range(5))


def _timed(work: object) -> float:
    assert callable(work)
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start
