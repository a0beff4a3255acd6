"""Regions, aliases, shares and work in flight in any order."""

from __future__ import annotations

import os

import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rollplex.memory.host import HostDriver
from rollplex.memory.ledger import StateClass
from rollplex.memory.pages import PagesExhaustedError
from rollplex.memory.region import Alias, PageManager, Region
from tests.unit.memory.regions import MIB, Flag, fill

SNAPSHOT = StateClass.SNAPSHOT


class Regions(RuleBasedStateMachine):
    """Any order of calls: content is what was written since the last map, and every byte is accounted for."""

    @initialize(limit=st.sampled_from([None, 16 * MIB]))
    def start(self, limit: int | None) -> None:
        self.manager = PageManager(HostDriver(), limit, debug=True)
        self.regions: list[Region] = []
        self.aliases: list[Alias] = []
        self.content: dict[Region, int] = {}
        self.flags: list[Flag] = []

    @precondition(lambda self: len(self.regions) < 6)
    @rule(granules=st.integers(1, 4))
    def make(self, granules: int) -> None:
        self.regions.append(self.manager.region(f"r{len(self.regions)}", granules * 2 * MIB, SNAPSHOT))

    @precondition(lambda self: self.regions)
    @rule(data=st.data(), value=st.integers(0, 254))
    def map(self, data: st.DataObject, value: int) -> None:
        region = data.draw(st.sampled_from(self.regions))
        was = region.mapped
        try:
            region.map()
        except PagesExhaustedError:
            held = sum(other.size for other in self.regions if other.mapped)
            assert self.manager.pool.limit is not None
            assert held + region.size > self.manager.pool.limit
            return
        if not was:
            fill(region, value)
            self.content[region] = value

    @precondition(lambda self: self.regions)
    @rule(data=st.data(), in_flight=st.booleans())
    def unmap(self, data: st.DataObject, in_flight: bool) -> None:
        flag = Flag() if in_flight else None
        if flag is not None:
            self.flags.append(flag)
        data.draw(st.sampled_from(self.regions)).unmap(flag)

    @precondition(lambda self: self.regions and len(self.aliases) < 6)
    @rule(data=st.data())
    def alias(self, data: st.DataObject) -> None:
        self.aliases.append(data.draw(st.sampled_from(self.regions)).alias())

    @precondition(lambda self: self.flags)
    @rule()
    def work_ends(self) -> None:
        self.flags.pop().done = True
        self.manager.collect()

    @precondition(lambda self: self.regions)
    @rule(data=st.data(), value=st.integers(0, 254))
    def share(self, data: st.DataObject, value: int) -> None:
        region = data.draw(st.sampled_from(self.regions))
        if not region.mapped:
            return
        exports = region.export()
        other = PageManager(HostDriver())
        theirs = other.adopt("theirs", exports, SNAPSHOT)
        for export in exports:
            os.close(export.descriptor)
        fill(theirs, value)
        theirs.close()
        self.content[region] = value

    @invariant()
    def bytes_are_right_and_accounted_for(self) -> None:
        if not hasattr(self, "manager"):
            return
        mapped = [region for region in self.regions if region.mapped]
        for region in mapped:
            whole = region.tensor((region.size,), torch.uint8)
            assert whole[:: 4096 * 16].unique().tolist() == [self.content[region]]
        for alias in self.aliases:
            if alias.region.mapped:
                assert alias.tensor((1,), torch.uint8, alias.region.size - 1).item() == self.content[alias.region]
        held = sum(region.size for region in mapped)
        assert self.manager.ledger.total == held <= self.manager.pool.created
        assert self.manager.driver.physical_bytes() <= self.manager.pool.created
        assert self.manager.pool.limit is None or self.manager.pool.created <= self.manager.pool.limit

    def teardown(self) -> None:
        if not hasattr(self, "manager"):
            return
        for region in self.regions:
            region.close()
        self.manager.pool.trim()
        assert self.manager.pool.created == self.manager.driver.physical_bytes() == self.manager.ledger.total == 0


TestRegions = Regions.TestCase
TestRegions.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
