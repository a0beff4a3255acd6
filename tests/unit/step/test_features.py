"""The cache of frozen towers' features: bounded, least recently used goes first, no graphs."""

from __future__ import annotations

import pytest
import torch

from rollplex.policy.cut import Features
from rollplex.step.features import FeatureCache


def features(floats: int) -> Features:
    return Features([torch.zeros(floats, 1)])


def test_the_cache_stays_within_its_bytes() -> None:
    cache = FeatureCache(limit_bytes=100)
    for number in range(10):
        cache.put(str(number), features(10))  # 40 bytes each
        assert len(cache) <= 2
    assert [name for name in map(str, range(10)) if cache.get(name)] == ["8", "9"]


def test_what_was_used_last_stays() -> None:
    cache = FeatureCache(limit_bytes=100)
    first = features(10)
    cache.put("first", first)
    cache.put("second", features(10))
    assert cache.get("first") is first
    cache.put("third", features(10))
    assert cache.get("second") is None
    assert cache.get("first") is first


def test_a_name_is_held_once() -> None:
    cache = FeatureCache(limit_bytes=100)
    first = features(10)
    cache.put("a", first)
    for _ in range(5):
        cache.put("a", features(10))
    cache.put("b", features(15))
    assert cache.get("a") is first
    assert len(cache) == 2


def test_what_exceeds_the_whole_cache_pushes_nothing_out() -> None:
    cache = FeatureCache(limit_bytes=100)
    cache.put("small", features(10))
    cache.put("huge", features(1000))
    assert cache.get("huge") is None
    assert cache.get("small") is not None


def test_features_with_a_graph_are_refused() -> None:
    weight = torch.ones(3, 1, requires_grad=True)
    with pytest.raises(ValueError, match="features 'actor:x' carry a graph of this step"):
        FeatureCache(100).put("actor:x", Features([weight * 2]))
