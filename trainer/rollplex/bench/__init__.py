"""``rollplex bench``: the same batch through every schedule, in one process, in interleaved rounds."""

from rollplex.bench.run import bench

__all__ = ["bench"]
