"""Packs: every row sees what it would see in its own full sequence, at the same positions."""

from __future__ import annotations

from itertools import pairwise

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rollplex.batch import Media, Prompt
from rollplex.policy.pack import Member, Pack, PackGroup, build_pack, input_tokens, split_by_budget
from rollplex.positions import rope_positions

CPU = torch.device("cpu")
quick = settings(max_examples=100, deadline=None)


def text_prompt(*token_ids: int) -> Prompt:
    return Prompt("text", token_ids, rope_positions(len(token_ids), (), (), merge=2, tokens_per_second=2))


def image_prompt() -> Prompt:
    """Two words, an image of 2 x 2 tokens, one word: positions fall back after the image."""
    image = Media("image", torch.zeros(16, 4), (1, 4, 4))
    return Prompt(
        "image",
        (1, 2, 9, 9, 9, 9, 3),
        rope_positions(7, [image], [(2,)], merge=2, tokens_per_second=2),
        (image,),
        ((2,),),
    )


def rows_apart() -> Prompt:
    """A video of two temporal rows of two tokens, each behind a word that stands for its time."""
    video = Media("video", torch.zeros(16, 4), (2, 2, 4), seconds_per_grid=1.0)
    starts = ((2, 5),)
    positions = rope_positions(8, [video], starts, merge=2, tokens_per_second=2)
    return Prompt("rows apart", (1, 6, 9, 9, 7, 9, 9, 3), positions, (video,), starts)


def pack_of(*groups: PackGroup, pad_to: int = 1) -> Pack:
    pack = build_pack(groups, CPU, pad_to)
    assert pack is not None
    return pack


def members(*responses: tuple[int, ...]) -> tuple[Member, ...]:
    return tuple(Member(index, response) for index, response in enumerate(responses))


def test_the_rows_of_a_shared_prefix() -> None:
    """Last prompt token in, last response token out; positions go on after the largest of the prompt."""
    prompt = image_prompt()
    assert prompt.positions.tolist() == [[0, 1, 2, 2, 2, 2, 4], [0, 1, 2, 2, 3, 3, 4], [0, 1, 2, 3, 2, 3, 4]]
    pack = pack_of(PackGroup(4, prompt, members((5, 6, 7), (), (8,))))
    assert pack.token_ids.tolist() == [3, 5, 6, 3]
    assert pack.positions.tolist() == [[4, 5, 6, 4]] * 3
    assert pack.target_rows.tolist() == [0, 1, 2, 3]
    assert pack.targets.tolist() == [5, 6, 7, 8]
    assert pack.owners == [(4, 0, slice(0, 3)), (4, 2, slice(3, 4))]
    assert pack.groups == [4]
    assert pack.media_rows == []
    (segment,) = pack.segments
    assert (segment.start, segment.stop, segment.prefix) == (0, 4, 0)
    assert segment.mask is not None
    assert segment.mask[:, :6].all()
    assert segment.mask[:, 6:].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 0, 1]]


def test_the_rows_of_repeated_prompts() -> None:
    prompt = image_prompt()
    pack = pack_of(PackGroup(2, prompt, members((5, 6), (8,)), split=False))
    assert pack.token_ids.tolist() == [*prompt.token_ids, 5, *prompt.token_ids]
    assert pack.target_rows.tolist() == [6, 7, 14]
    assert pack.targets.tolist() == [5, 6, 8]
    assert pack.owners == [(2, 0, slice(0, 2)), (2, 1, slice(2, 3))]
    assert pack.groups == []
    assert pack.media_rows == [(2, 0, (2,)), (2, 0, (10,))]
    assert [(s.start, s.stop, s.prefix, s.mask) for s in pack.segments] == [(0, 8, None, None), (8, 15, None, None)]


def test_the_rows_of_a_video_whose_rows_stand_apart() -> None:
    """Each row is placed like an image: no time in its positions, whatever its seconds."""
    prompt = rows_apart()
    assert prompt.positions.tolist() == [[0, 1, 2, 2, 4, 5, 5, 7], [0, 1, 2, 2, 4, 5, 5, 7], [0, 1, 2, 3, 4, 5, 6, 7]]
    pack = pack_of(PackGroup(1, prompt, members((5,), (8, 9)), split=False))
    assert pack.media_rows == [(1, 0, (2, 5)), (1, 0, (10, 13))]


def test_a_one_token_prompt_reads_no_prefix() -> None:
    for split in (True, False):
        pack = pack_of(PackGroup(0, text_prompt(7), members((5, 6), (8,)), split=split))
        assert pack.token_ids.tolist() == [7, 5, 7]
        assert pack.groups == []
        assert {segment.prefix for segment in pack.segments} == {None}
        assert pack.positions[0].tolist() == [0, 1, 0]


def test_without_a_token_there_is_no_pack() -> None:
    assert build_pack([PackGroup(0, text_prompt(1, 2), members((), ()))], CPU) is None
    assert build_pack([], CPU) is None


def test_1234_rows_are_padded_to_1240() -> None:
    responses = members(*[(1,) * 200] * 6, (2,) * 34)
    prompt = image_prompt()
    plain, padded = pack_of(PackGroup(0, prompt, responses)), pack_of(PackGroup(0, prompt, responses), pad_to=8)
    assert (plain.token_ids.numel(), padded.token_ids.numel()) == (1234, 1240)
    assert padded.positions.shape == (3, 1240)
    assert torch.equal(padded.positions[:, :1234], plain.positions)
    assert torch.equal(padded.token_ids[:1234], plain.token_ids)
    assert torch.equal(padded.target_rows, plain.target_rows)
    assert padded.owners == plain.owners
    last = padded.segments[-1]
    assert (last.start, last.stop, last.prefix) == (1234, 1240, None)
    assert pack_of(PackGroup(0, prompt, members((1,) * 16)), pad_to=8).token_ids.numel() == 16


Seen = list[tuple[int, tuple[int, ...]]]  # token ids and their positions


def seen_by(pack: Pack, prompts: dict[int, Prompt]) -> list[Seen]:
    """For every row, the tokens that it attends to, in order."""
    rows: dict[int, Seen] = {}
    for segment in pack.segments:
        own = [
            (int(pack.token_ids[r]), tuple(pack.positions[:, r].tolist())) for r in range(segment.start, segment.stop)
        ]
        before: Seen = []
        if segment.prefix is not None:
            prompt = prompts[pack.groups[segment.prefix]]
            before = list(zip(prompt.token_ids[:-1], map(tuple, prompt.positions.T[:-1].tolist()), strict=True))
        keys = before + own
        mask = torch.ones(len(own), len(own), dtype=torch.bool).tril() if segment.mask is None else segment.mask
        assert mask.shape == (len(own), len(keys))
        for row in range(len(own)):
            assert segment.start + row not in rows, "segments overlap"
            rows[segment.start + row] = [key for key, visible in zip(keys, mask[row].tolist(), strict=True) if visible]
    assert sorted(rows) == list(range(pack.token_ids.numel()))
    return [rows[row] for row in range(len(rows))]


@st.composite
def pack_groups(draw: st.DrawFn) -> list[PackGroup]:
    """Groups of distinct numbers, with and without a split, empty responses among them."""
    groups = []
    for number in draw(st.lists(st.integers(0, 50), unique=True, max_size=4)):
        prompt = draw(
            st.sampled_from(
                [text_prompt(7), text_prompt(4, 5), text_prompt(*range(20, 31)), image_prompt(), rows_apart()]
            )
        )
        responses = draw(st.lists(st.lists(st.integers(0, 99), max_size=5).map(tuple), max_size=4))
        groups.append(PackGroup(number, prompt, members(*responses), split=draw(st.booleans())))
    return groups


@quick
@given(pack_groups(), st.sampled_from([1, 8]))
def test_every_target_is_predicted_from_its_own_sequence(groups: list[PackGroup], pad_to: int) -> None:
    pack = build_pack(groups, CPU, pad_to)
    wanted = [(g.group, m.index, m.token_ids) for g in groups for m in g.members if m.token_ids]
    if pack is None:
        assert not wanted
        return
    assert pack.token_ids.numel() % pad_to == 0
    assert [(group, sample) for group, sample, _ in pack.owners] == [(group, sample) for group, sample, _ in wanted]
    prompts = {group.group: group.prompt for group in groups}
    seen = seen_by(pack, prompts)
    for (group, _, tokens), (_, _, response) in zip(pack.owners, wanted, strict=True):
        assert tuple(pack.targets[tokens].tolist()) == response
        prompt = prompts[group]
        following = range(prompt.next_position, prompt.next_position + len(response))
        sequence = [
            *zip(prompt.token_ids, map(tuple, prompt.positions.T.tolist()), strict=True),
            *((token, (at,) * 3) for token, at in zip(response, following, strict=True)),
        ]
        for place, row in enumerate(pack.target_rows[tokens].tolist()):
            assert seen[row] == sequence[: len(prompt.token_ids) + place]
    for group, medium, rows in pack.media_rows:
        prompt = prompts[group]
        starts = prompt.media_starts[medium]
        count = prompt.media[medium].tokens(2) // len(starts)
        for row, start in zip(rows, starts, strict=True):
            assert tuple(pack.token_ids[row : row + count].tolist()) == prompt.token_ids[start : start + count]
    unsplit = sum(len(g.prompt.media) for g in groups if not g.split for m in g.members if m.token_ids)
    assert len(pack.media_rows) == unsplit


@quick
@given(pack_groups(), st.integers(1, 30))
def test_a_budget_cuts_in_order_and_loses_nobody(groups: list[PackGroup], budget: int) -> None:
    packs = list(split_by_budget(groups, budget))

    def everyone(pack: list[PackGroup]) -> list[tuple[int, int]]:
        return [(group.group, member.index) for group in pack for member in group.members]

    assert [name for pack in packs for name in everyone(pack)] == everyone(groups)
    for pack in packs:
        assert everyone(pack), "a pack of nobody"
        assert len({group.group for group in pack}) == len(pack), "a group is in a pack once: its KV is read once"
        spent = [input_tokens(g.prompt, m.token_ids, g.split) for g in pack for m in g.members]
        assert sum(spent) <= budget or len([cost for cost in spent if cost]) == 1
    # greedy: what begins a pack did not fit into the one before
    for before, after in pairwise(packs):
        cost = sum(input_tokens(g.prompt, m.token_ids, g.split) for g in before for m in g.members)
        first = after[0]
        assert cost + input_tokens(first.prompt, first.members[0].token_ids, first.split) > budget
    by_group = {group.group: group for group in groups}
    for group in (group for pack in packs for group in pack):
        assert (group.prompt, group.split) == (by_group[group.group].prompt, by_group[group.group].split)


def test_input_tokens_are_the_rows() -> None:
    for prompt in (text_prompt(7), image_prompt()):
        for split in (True, False):
            for response in ((), (1,), (1, 2, 3)):
                pack = build_pack([PackGroup(0, prompt, members(response), split)], CPU)
                rows = 0 if pack is None else pack.token_ids.numel()
                assert input_tokens(prompt, response, split) == rows
