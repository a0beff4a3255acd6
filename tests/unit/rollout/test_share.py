"""The re-laid-out copies; that whole models are covered is in tests/engine/rollout."""

import pytest
import torch

from rollplex.weights.share import Copy


@pytest.mark.parametrize("tail", [(16,), ()])
def test_qkv_is_relaid_out_exactly(tail: tuple[int, ...]) -> None:
    """Case 41 at TP 1: 8 query heads, 2 KV heads, head 4, hidden 16; every row holds its index in Megatron's order."""
    groups, per_group, head = 2, 4, 4
    rows = groups * (per_group + 2) * head
    source = torch.arange(rows).float().reshape(rows, *[1] * len(tail)).expand(rows, *tail).contiguous()
    copy = Copy("qkv", torch.nn.Parameter(source), torch.empty_like(source), groups, head)
    copy.refresh()
    block = (per_group + 2) * head
    queries = [g * block + r for g in range(groups) for r in range(per_group * head)]
    keys = [g * block + per_group * head + r for g in range(groups) for r in range(head)]
    values = [g * block + (per_group + 1) * head + r for g in range(groups) for r in range(head)]
    assert copy.target.reshape(rows, -1)[:, 0].tolist() == [float(i) for i in queries + keys + values]


def test_refresh_follows_the_source() -> None:
    source = torch.nn.Parameter(torch.zeros(12, 4))
    copy = Copy("qkv", source, torch.full((12, 4), 9.0), groups=1, head_dim=4)
    copy.refresh()
    assert not copy.target.any()
    with torch.no_grad():
        source.fill_(2.0)
    assert not copy.target.any(), "a copy is no view"
    copy.refresh()
    assert (copy.target == 2.0).all()
