"""Packing responses into one row of tokens (pure but for tensor building).

A pack holds the suffixes of some responses of some groups: rows T = all their input tokens, one after the other, no
padding between them. Rows of one group share the prefix's KV. Without a split (``sharePrefix: false``) each response
brings its whole prompt along and has no prefix.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from rollplex.batch import Prompt
from rollplex.policy.attention import Segment, causal_after_prefix
from rollplex.positions import suffix_positions


@dataclass(frozen=True)
class Member:
    """One response to score: ``index`` in its group, its token ids."""

    index: int
    token_ids: tuple[int, ...]


@dataclass(frozen=True)
class PackGroup:
    """Members of one group that go into a pack. ``split`` False: prompts are repeated, prefixes unused."""

    group: int
    prompt: Prompt
    members: tuple[Member, ...]
    split: bool = True


@dataclass
class Pack:
    """One pass over packed responses. M = all response tokens, in order of ``owners``."""

    token_ids: torch.Tensor  # [T] int64
    positions: torch.Tensor  # [3, T] int64
    segments: list[Segment]
    target_rows: torch.Tensor  # [M] rows whose output predicts a response token
    targets: torch.Tensor  # [M] the response tokens
    owners: list[tuple[int, int, slice]]  # (group, sample, its tokens in M); empty responses own nothing
    groups: list[int]  # groups whose boundary KV is read, in the order Segment.prefix counts
    # (group, medium, first rows of its runs): of prompts that are not split
    media_rows: list[tuple[int, int, tuple[int, ...]]] = field(default_factory=list)


def input_tokens(prompt: Prompt, response: Sequence[int], split: bool) -> int:
    """Rows of a response: its tokens (last prompt token in, last response token out), and unsplit the whole prompt."""
    if not response:
        return 0
    return len(response) + (0 if split else len(prompt.token_ids) - 1)


def build_pack(groups: Sequence[PackGroup], device: torch.device, pad_to: int = 1) -> Pack | None:
    """Lay members out one after the other; None where no member has a token.

    ``pad_to``: the rows are filled up to a multiple with tokens that only see themselves and predict nothing.
    """
    ids: list[int] = []
    positions: list[torch.Tensor] = []
    segments: list[Segment] = []
    rows: list[int] = []
    targets: list[int] = []
    owners: list[tuple[int, int, slice]] = []
    read: list[int] = []
    media_rows: list[tuple[int, int, tuple[int, ...]]] = []

    def add(group: PackGroup, member: Member) -> None:
        prompt, response = group.prompt, member.token_ids
        first = len(ids)
        following = suffix_positions(prompt.positions, len(response))
        if group.split:
            ids.append(prompt.token_ids[-1])
            positions.append(following)
        else:
            ids.extend(prompt.token_ids)
            positions.append(torch.cat([prompt.positions[:, :-1], following], dim=1))
            for medium, starts in enumerate(prompt.media_starts):
                media_rows.append((group.group, medium, tuple(first + start for start in starts)))
        rows.extend(range(len(ids) - 1, len(ids) - 1 + len(response)))
        ids.extend(response[:-1])
        owners.append((group.group, member.index, slice(len(targets), len(targets) + len(response))))
        targets.extend(response)

    for group in groups:
        members = [member for member in group.members if member.token_ids]
        if not members:
            continue
        start = len(ids)
        prefix = len(group.prompt.token_ids) - 1 if group.split else 0
        for member in members:
            before = len(ids)
            add(group, member)
            if not group.split:
                segments.append(Segment(before, len(ids)))
        if group.split:
            mask = causal_after_prefix(prefix, [len(m.token_ids) for m in members], device)
            segments.append(Segment(start, len(ids), prefix=len(read) if prefix else None, mask=mask))
            if prefix:
                read.append(group.group)
    if not ids:
        return None
    if missing := -len(ids) % pad_to:
        segments.append(Segment(len(ids), len(ids) + missing))
        ids.extend([0] * missing)
        positions.append(torch.zeros(3, missing, dtype=torch.int64))
    return Pack(
        token_ids=torch.tensor(ids, device=device),
        positions=torch.cat(positions, dim=1).to(device),
        segments=segments,
        target_rows=torch.tensor(rows, device=device),
        targets=torch.tensor(targets, device=device),
        owners=owners,
        groups=read,
        media_rows=media_rows,
    )


def split_by_budget(groups: Sequence[PackGroup], budget: int) -> Iterator[list[PackGroup]]:
    """Cut groups into packs of at most ``budget`` input tokens, in order; a longer response gets a pack of its own."""
    pack: list[PackGroup] = []
    used = 0
    for group in groups:
        taken: list[Member] = []
        for member in group.members:
            cost = input_tokens(group.prompt, member.token_ids, group.split)
            if used and used + cost > budget:
                if taken:
                    pack.append(PackGroup(group.group, group.prompt, tuple(taken), group.split))
                yield pack
                pack, taken, used = [], [], 0
            taken.append(member)
            used += cost
        if taken:
            pack.append(PackGroup(group.group, group.prompt, tuple(taken), group.split))
    if pack:
        yield pack
