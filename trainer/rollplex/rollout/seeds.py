"""Per-request seeds: a pure function of what is sampled, so that no schedule, order or retry changes them."""

from __future__ import annotations

import hashlib


def sample_seed(job_seed: int, step: int, prompt_id: str, sample: int) -> int:
    """Seed in [0, 2^63) of one sample; stable across processes and Python versions."""
    words = repr((job_seed, step, prompt_id, sample)).encode()
    return int.from_bytes(hashlib.blake2b(words, digest_size=8).digest(), "big") >> 1


def request_id(step: int, prompt: int, sample: int) -> str:
    """Name of a request, as it appears in logs and errors; ``prompt`` is the index in the step's batch."""
    return f"s{step}-p{prompt}-i{sample}"
