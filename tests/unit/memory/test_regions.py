"""Regions and pages on host memory, where a page really is shared, freed and faulted as on a GPU."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from rollplex.memory.driver import EXPANDABLE
from rollplex.memory.host import HostDriver
from rollplex.memory.ledger import Holding, StateClass
from rollplex.memory.pages import PagesExhaustedError
from rollplex.memory.region import PageManager, RegionError
from tests.unit.memory.regions import MIB, Flag, add_one_in_another_process, fill

SNAPSHOT, PERMANENT, BOUNDARY = StateClass.SNAPSHOT, StateClass.PERMANENT, StateClass.BOUNDARY


@pytest.fixture
def manager() -> Iterator[PageManager]:
    manager = PageManager(HostDriver(), debug=True)
    yield manager
    manager.collect(wait=True)
    manager.pool.trim()
    assert manager.driver.physical_bytes() == 0, "a region was left open, or pages leak"


def test_region_keeps_its_address_while_pages_come_and_go(manager: PageManager) -> None:
    region = manager.region("kv", 3 * MIB, SNAPSHOT)
    assert region.size == 4 * MIB  # a multiple of the granule
    region.map()
    first = region.tensor((4,), torch.float32)
    first.fill_(1.5)
    address = first.data_ptr()
    region.unmap()
    region.map()
    again = region.tensor((4,), torch.float32)
    assert again.data_ptr() == address == region.address
    first.fill_(2.5)  # a tensor that was kept, as a captured graph keeps an address
    assert again.tolist() == [2.5] * 4
    region.close()


def test_unmapped_region_is_an_error_before_anything_runs(manager: PageManager) -> None:
    region = manager.region("actor prefix", 2 * MIB, BOUNDARY)
    with pytest.raises(RegionError, match=r"^actor prefix \(boundary\) has no pages now: map it before it is used$"):
        region.tensor((1,), torch.int8)
    region.map()
    region.map()  # idempotent, as is unmap
    assert manager.ledger.held == {Holding(BOUNDARY, "actor prefix"): 2 * MIB}
    region.unmap()
    region.unmap()
    assert manager.ledger.total == 0
    with pytest.raises(RegionError, match="has no pages now"):
        region.export()
    region.close()
    region.close()
    with pytest.raises(RegionError, match="is closed"):
        region.map()


def test_unmapped_address_really_faults() -> None:
    program = """
import sys, torch
from rollplex.memory.host import HostDriver
from rollplex.memory.ledger import StateClass
from rollplex.memory.region import PageManager
region = PageManager(HostDriver()).region("kv", 2 << 20, StateClass.SNAPSHOT)
region.map()
kept = region.tensor((8,), torch.uint8)
kept.fill_(7)
print("mapped", kept.sum().item(), flush=True)
region.unmap()
kept.fill_(7)
print("still there", flush=True)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (run.stdout, run.returncode) == ("mapped 56\n", -signal.SIGSEGV)


def test_tensor_stays_within_its_region(manager: PageManager) -> None:
    region = manager.region("kv", 2 * MIB, SNAPSHOT)
    region.map()
    with pytest.raises(RegionError, match="8 bytes at 2,097,148 reach beyond its 2,097,152"):
        region.tensor((2,), torch.float32, offset=2 * MIB - 4)
    with pytest.raises(RegionError, match=r"offset 2 is no multiple of torch.float32's 4 bytes"):
        region.tensor((2,), torch.float32, offset=2)
    region.close()


def test_alias_is_the_same_memory(manager: PageManager) -> None:
    region = manager.region("weights", 4 * MIB, SNAPSHOT)
    early = region.alias()
    region.map()
    late = region.alias()
    region.tensor((4,), torch.int32, offset=2 * MIB).copy_(torch.arange(4))
    for alias in (early, late):
        assert alias.address != region.address
        assert alias.tensor((4,), torch.int32, offset=2 * MIB).tolist() == [0, 1, 2, 3]
    early.tensor((4,), torch.int32, offset=2 * MIB).add_(1)
    assert region.tensor((4,), torch.int32, offset=2 * MIB).tolist() == [1, 2, 3, 4]
    assert manager.ledger.total == 4 * MIB  # bytes, not addresses
    region.unmap()
    with pytest.raises(RegionError, match="no pages"):
        early.tensor((1,), torch.int32)
    region.close()


def test_unmapped_pages_are_poisoned_so_that_what_nobody_regenerates_shows(manager: PageManager) -> None:
    names = ["rope table", "regenerated"]
    regions = {name: manager.region(name, 2 * MIB, SNAPSHOT) for name in names}
    for region in regions.values():
        region.map()
        region.tensor((MIB // 2,), torch.float32).fill_(1)
    for region in regions.values():
        region.unmap()
    for region in regions.values():
        region.map()
    regions["regenerated"].tensor((MIB // 2,), torch.float32).fill_(1)
    stale = [name for name in names if regions[name].tensor((MIB // 2,), torch.float32).isnan().any()]
    assert stale == ["rope table"]
    for region in regions.values():
        region.close()


def test_buffer_that_is_written_once_may_not_lose_its_pages(manager: PageManager) -> None:
    with pytest.raises(RegionError, match="graph constants: written once and read ever after, but its class is phase-"):
        manager.region("graph constants", 2 * MIB, StateClass.PHASE_LOCAL, init_once=True)
    region = manager.region("graph constants", 2 * MIB, PERMANENT, init_once=True)
    region.map()
    with pytest.raises(RegionError, match="graph constants: its pages are permanent; close it instead"):
        region.unmap()
    region.close()


def test_pages_are_used_again_only_after_their_last_reader() -> None:
    manager = PageManager(HostDriver(), limit=4 * MIB)
    first, second = (manager.region(name, 4 * MIB, BOUNDARY) for name in ("first", "second"))
    first.map()
    fill(first, 3)
    reading, flag = first.tensor((4,), torch.uint8), Flag()
    first.unmap(after=flag)
    assert manager.ledger.total == 0
    assert reading.tolist() == [3] * 4, "the work in flight still sees its bytes"
    second.map()  # nothing else makes room: it has to wait
    assert flag.waited
    fill(second, 4)
    with pytest.raises(
        PagesExhaustedError, match="no pages for 4,194,304 bytes: the limit is 4,194,304, in use are 4,"
    ):
        first.map()
    second.unmap()
    flag = Flag()
    first.map()
    first.unmap(after=flag)
    first.map()  # its old pages are still at its addresses
    assert flag.waited
    for region in (first, second):
        region.close()
    manager.pool.trim()


def test_work_in_flight_is_not_waited_for_where_there_is_room() -> None:
    manager = PageManager(HostDriver(), limit=8 * MIB)
    first, second = (manager.region(name, 4 * MIB, BOUNDARY) for name in ("first", "second"))
    flag = Flag()
    first.map()
    first.unmap(after=flag)
    second.map()
    assert not flag.waited
    for region in (first, second):
        region.close()


def test_pool_recycles_and_gives_way_between_sizes() -> None:
    manager = PageManager(HostDriver(), limit=66 * MIB)
    large = manager.region("large", 66 * MIB, SNAPSHOT)
    small = [manager.region(f"small {index}", 2 * MIB, SNAPSHOT) for index in range(33)]
    large.map()
    created = manager.pool.created
    large.unmap()
    for region in small:  # the free 64 MiB block has to go for them
        region.map()
        fill(region, 1)
    assert manager.pool.created <= created == 66 * MIB
    for region in small:
        region.unmap()
    large.map()  # made of 33 small blocks
    fill(large, 2)
    assert manager.pool.created == 66 * MIB
    assert manager.driver.physical_bytes() == 66 * MIB
    for region in (large, *small):
        region.close()


@pytest.mark.parametrize("name", EXPANDABLE)
def test_expandable_segments_are_found_under_both_names(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "max_split_size_mb:64, expandable_segments:True")
    with pytest.raises(ValueError, match=f"^{name} has expandable_segments:True"):
        PageManager(HostDriver())
    monkeypatch.setenv(name, "expandable_segments:False")
    PageManager(HostDriver())


def test_pages_are_shared_with_another_process_and_outlive_it(manager: PageManager, tmp_path: Path) -> None:
    region = manager.region("weights", 4 * MIB, SNAPSHOT)
    region.map()
    fill(region, 5)
    add_one_in_another_process(region, HostDriver, tmp_path)
    assert region.tensor((4 * MIB,), torch.uint8).unique().tolist() == [6]
    region.close()
