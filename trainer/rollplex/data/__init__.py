"""Datasets, video decoding and prompt building: from a JSONL row to a :class:`rollplex.batch.Prompt`."""
