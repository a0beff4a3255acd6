"""Pages of GPU memory by CUDA's virtual memory calls, in torch's primary context.

Map and unmap are not ordered with streams: the page manager unmaps only what a marker says is done.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
from cuda.bindings import driver as cu

from rollplex.memory.driver import Block, DriverError


@dataclass(eq=False, slots=True)
class CudaBlock:
    """A physical allocation of ``size`` bytes."""

    handle: Any
    size: int


class _Range:
    """An address range by the CUDA array interface, which torch wraps without a copy."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}


class CudaDriver:
    """The page driver of one GPU.

    Args:
        device: its index among the visible ones.
    """

    def __init__(self, device: int = 0) -> None:
        torch.zeros(1, device=f"cuda:{device}")  # makes the primary context, and makes it current
        self._device = device
        self._blocks: set[CudaBlock] = set()
        self._properties = _properties(device)
        self._access = cu.CUmemAccessDesc()
        self._access.location = self._properties.location
        self._access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        minimum = cu.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        self.granule = int(_done("granularity", 0, cu.cuMemGetAllocationGranularity(self._properties, minimum)))

    def reserve(self, size: int) -> int:
        return int(_done("reserve", size, cu.cuMemAddressReserve(size, self.granule, 0, 0)))

    def release(self, address: int, size: int) -> None:
        _done("release", size, cu.cuMemAddressFree(address, size))

    def create(self, size: int) -> CudaBlock:
        return self._added(CudaBlock(_done("create", size, cu.cuMemCreate(size, self._properties, 0)), size))

    def destroy(self, block: Block) -> None:
        block = self._own(block)
        self._blocks.remove(block)
        _done("destroy", block.size, cu.cuMemRelease(block.handle))

    def map(self, address: int, block: Block) -> None:
        block = self._own(block)
        _done("map", block.size, cu.cuMemMap(address, block.size, 0, block.handle, 0))
        _done("set access", block.size, cu.cuMemSetAccess(address, block.size, [self._access], 1))

    def unmap(self, address: int, size: int) -> None:
        _done("unmap", size, cu.cuMemUnmap(address, size))

    def export(self, block: Block) -> int:
        kind = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        block = self._own(block)
        return int(_done("export", block.size, cu.cuMemExportToShareableHandle(block.handle, kind, 0)))

    def adopt(self, descriptor: int, size: int) -> CudaBlock:
        try:
            os.fstat(descriptor)
        except OSError as error:
            raise DriverError(f"descriptor {descriptor}: {error.strerror}") from None
        kind = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        handle = _done("adopt", size, cu.cuMemImportFromShareableHandle(descriptor, kind))
        return self._added(CudaBlock(handle, size))

    def tensor(self, address: int, size: int) -> torch.Tensor:
        return torch.as_tensor(_Range(address, size), device=f"cuda:{self._device}")

    def physical_bytes(self) -> int:
        return sum(block.size for block in self._blocks)

    def _added(self, block: CudaBlock) -> CudaBlock:
        self._blocks.add(block)
        return block

    def _own(self, block: Block) -> CudaBlock:
        assert isinstance(block, CudaBlock)
        assert block in self._blocks, "another driver's, or destroyed"
        return block


def _properties(device: int) -> Any:
    properties = cu.CUmemAllocationProp()
    properties.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = device
    properties.requestedHandleTypes = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    return properties


def _done(call: str, size: int, answer: tuple[Any, ...]) -> Any:
    """The result of a CUDA call; raises DriverError if it failed."""
    error, *result = answer
    if error != cu.CUresult.CUDA_SUCCESS:
        raise DriverError(f"CUDA {call} of {size:,} bytes: {error.name}")
    return result[0] if result else None
