"""Regions over CUDA's own pages: addresses that captured graphs hold, memory of two processes, the driver's figures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from rollplex.memory.driver import DriverError
from rollplex.memory.ledger import StateClass
from rollplex.memory.region import PageManager
from tests.unit.memory.regions import add_one_in_another_process

pytestmark = pytest.mark.gpu
MIB = 1 << 20
SNAPSHOT = StateClass.SNAPSHOT


@pytest.fixture
def manager() -> Iterator[PageManager]:
    from rollplex.memory.cuda import CudaDriver

    manager = PageManager(CudaDriver(), debug=True)
    yield manager
    manager.collect(wait=True)
    manager.pool.trim()
    assert manager.pool.created == manager.driver.physical_bytes() == 0


def others_free() -> int:
    """Bytes of the card that neither pages nor torch's allocator hold, by the driver's own figure."""
    return torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved()


def test_pages_come_and_go_under_one_address_and_the_driver_agrees(manager: PageManager) -> None:
    region = manager.region("kv", 256 * MIB, SNAPSHOT)
    torch.cuda.synchronize()
    before = others_free()
    region.map()
    assert before - others_free() == 256 * MIB == manager.ledger.total
    tensor = region.tensor((64 * MIB,), torch.float32)
    tensor.fill_(1.5)
    assert tensor.sum().item() == 1.5 * 64 * MIB
    torch.cuda.synchronize()
    region.unmap()
    region.map()
    assert tensor.data_ptr() == region.address
    assert tensor.isnan().all()  # poisoned
    torch.cuda.synchronize()
    region.unmap()
    manager.pool.trim()
    assert others_free() == before
    region.close()


def test_alias_is_the_same_memory(manager: PageManager) -> None:
    region = manager.region("weights", 66 * MIB, SNAPSHOT)
    region.map()
    alias = region.alias()
    region.tensor((4,), torch.int32, offset=65 * MIB).copy_(torch.arange(4))
    alias.tensor((4,), torch.int32, offset=65 * MIB).add_(1)
    assert region.tensor((4,), torch.int32, offset=65 * MIB).tolist() == [1, 2, 3, 4]
    region.close()


def test_captured_graph_stays_valid_while_its_pages_go_and_come(manager: PageManager) -> None:
    inputs = manager.region("inputs", 2 * MIB, SNAPSHOT)
    weights = manager.region("weights", 2 * MIB, SNAPSHOT)
    for region in (inputs, weights):
        region.map()
    x = inputs.tensor((16, 64), torch.float32)
    w = weights.tensor((64, 64), torch.float32)
    out = torch.empty(16, 64, device="cuda")
    x.normal_()
    w.normal_()
    torch.mm(x, w, out=out)  # makes cuBLAS's handle and workspace before the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.mm(x, w, out=out)
    for _ in range(3):
        torch.cuda.synchronize()
        inputs.unmap()
        weights.unmap()
        weights.map()  # in another order, so that the physical pages change places
        inputs.map()
        values = torch.randn(16, 64, device="cuda"), torch.randn(64, 64, device="cuda")
        x.copy_(values[0])
        w.copy_(values[1])
        graph.replay()
        torch.testing.assert_close(out, values[0] @ values[1])
    torch.cuda.synchronize()
    for region in (inputs, weights):
        region.close()


def test_pages_are_kept_until_the_last_kernel_that_reads_them_is_done(manager: PageManager) -> None:
    manager.debug = False
    manager.pool.limit = 64 * MIB
    first, second = (manager.region(name, 64 * MIB, StateClass.BOUNDARY) for name in ("first", "second"))
    first.map()
    values = first.tensor((16 * MIB,), torch.float32)
    values.fill_(1)
    torch.cuda.synchronize()
    side, sums = torch.cuda.Stream(), []
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)  # about a tenth of a second before it is read
        sums.append(values.sum())
        last_read = side.record_event()
    first.unmap(after=last_read)
    assert not last_read.query()
    second.map()  # has to wait for the only pages there are
    second.tensor((16 * MIB,), torch.float32).fill_(2)
    torch.cuda.synchronize()
    assert sums[0].item() == 16 * MIB
    for region in (first, second):
        region.close()


def test_pages_are_shared_with_another_process_and_outlive_it(manager: PageManager, tmp_path: Path) -> None:
    from rollplex.memory.cuda import CudaDriver

    region = manager.region("weights", 66 * MIB, SNAPSHOT)
    region.map()
    region.tensor((66 * MIB,), torch.uint8).fill_(5)
    torch.cuda.synchronize()
    add_one_in_another_process(region, CudaDriver, tmp_path)
    assert region.tensor((66 * MIB,), torch.uint8).unique().tolist() == [6]
    region.close()


def test_more_than_the_card_has_is_an_error_and_leaves_all_as_it_was(manager: PageManager) -> None:
    total = torch.cuda.mem_get_info()[1]
    region = manager.region("too much", total + (1 << 30), SNAPSHOT)
    with pytest.raises(DriverError, match="CUDA create of 1,073,741,824 bytes: CUDA_ERROR_OUT_OF_MEMORY"):
        region.map()
    assert not region.mapped
    assert manager.ledger.total == 0
    region.close()
