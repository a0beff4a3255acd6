from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rollplex.batch import Media, Prompt, Response
from rollplex.rollout.protocol import RetiredError, Sampling
from rollplex.rollout.replay import Judged, ReplayEngine, ReplayError, read_rollouts, save_rollouts


def prompt(name: str, ids: tuple[int, ...] = (5, 6, 7), pixel: float | None = None) -> Prompt:
    media = () if pixel is None else (Media("image", torch.full((4, 3), pixel), (1, 2, 2)),)
    return Prompt(name, ids, torch.arange(len(ids)).expand(3, -1), media, ((1,),) * len(media))


def response(index: int, sample: int, tokens: int, finish: str = "length") -> Response:
    ids = tuple(range(10 * index + sample, 10 * index + sample + tokens))
    logprobs = tuple(-1.0 / (i + 3) for i in ids)
    return Response(index, sample, ids, logprobs, finish, 7 if finish == "stop" else None, 'é\n"x"')  # type: ignore[arg-type]


PROMPTS = [prompt("a"), prompt("b", (5, 6, 7, 8), pixel=0.5)]
RESPONSES = [response(0, 0, 2), response(0, 1, 5, "stop"), response(1, 0, 1), response(1, 1, 0)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_rollouts(tmp_path, 3, PROMPTS, reversed(RESPONSES), {(0, 0): Judged(0.25, {"exact": 0.5}, -0.75)})
    return tmp_path


def ready(folder: Path) -> ReplayEngine:
    engine = ReplayEngine(read_rollouts(folder))
    engine.publish()
    return engine


def drain(engine: ReplayEngine) -> list[Response]:
    done: list[Response] = []
    while engine.unfinished:
        done += engine.step()
    return done


def test_replay_gives_back_what_was_saved(folder: Path) -> None:
    engine = ready(folder)
    engine.submit(3, PROMPTS, 2, Sampling())
    assert sorted(drain(engine), key=lambda r: (r.prompt, r.sample)) == RESPONSES
    saved = read_rollouts(folder)
    assert [(s.reward, s.parts, s.advantage) for s in saved] == [(0.25, {"exact": 0.5}, -0.75)] + [(None,) * 3] * 3


def test_replay_finishes_short_responses_first(folder: Path) -> None:
    engine = ready(folder)
    engine.submit(3, PROMPTS, 2, Sampling())
    seen = []
    while engine.unfinished:
        done = engine.step()
        seen.append((engine.decode_batch, engine.decode_tokens, [(r.prompt, r.sample) for r in done]))
    assert seen == [(3, 3, [(1, 0), (1, 1)]), (2, 2, [(0, 0)]), (1, 1, []), (1, 1, []), (1, 1, [(0, 1)])]


def test_replay_of_a_step_saved_twice_reads_the_last(folder: Path) -> None:
    again = [replace(r, text="again") for r in RESPONSES]
    save_rollouts(folder, 3, PROMPTS, again)
    engine = ready(folder)
    engine.submit(3, PROMPTS, 2, Sampling())
    assert {r.text for r in drain(engine)} == {"again"}
    assert [file.name for file in folder.iterdir()] == ["step-000003.jsonl"]


def test_replay_of_a_prompt_that_is_twice_in_the_batch(tmp_path: Path) -> None:
    prompts = [PROMPTS[0], PROMPTS[1], PROMPTS[0]]
    responses = [response(i, 0, i + 1) for i in range(3)]
    save_rollouts(tmp_path, 1, prompts, responses)
    engine = ready(tmp_path)
    engine.submit(1, prompts, 1, Sampling())
    assert drain(engine) == responses


def test_one_file_is_enough(folder: Path) -> None:
    assert read_rollouts(folder / "step-000003.jsonl") == read_rollouts(folder)


@pytest.mark.parametrize(
    ("step", "prompts", "group", "fault"),
    [
        (4, PROMPTS, 2, "step 4 is not saved; there are 1 steps from 3 to 3"),
        (3, [PROMPTS[0], prompt("c")], 2, "step 3, prompt 'c', sample 0 is not saved; that step has prompts a, b"),
        (3, PROMPTS, 3, "prompt 'a', sample 2 is not saved"),
        (3, PROMPTS[:1], 2, r"4 saved samples, the batch 2 \(1 prompts x 2\)"),
        (3, [PROMPTS[0], PROMPTS[0]], 2, "prompt 'a', sample 0 is saved 1 times, the batch wants it more often"),
        (3, [prompt("a", (5, 9, 7)), PROMPTS[1]], 2, "prompt 'a', sample 0: prompt token 1 was 6, now it is 9"),
        (3, [prompt("a", (5, 6)), PROMPTS[1]], 2, "saved with 3 prompt tokens, now it has 2"),
        (3, [PROMPTS[0], prompt("b", (5, 6, 7, 8), pixel=0.6)], 2, "prompt 'b', .* the media do not"),
    ],
)
def test_other_batch_is_refused(folder: Path, step: int, prompts: list[Prompt], group: int, fault: str) -> None:
    engine = ready(folder)
    with pytest.raises(ReplayError, match=fault):
        engine.submit(step, prompts, group, Sampling())
    assert engine.unfinished == 0


def test_replay_keeps_the_engines_order_of_calls(folder: Path) -> None:
    engine = ReplayEngine(read_rollouts(folder))
    with pytest.raises(RetiredError, match="weight version 1 is not published"):
        engine.submit(3, PROMPTS, 2, Sampling())
    assert engine.publish() == engine.version == 1
    engine.submit(3, PROMPTS, 2, Sampling())
    for call in (engine.retire, engine.publish):
        with pytest.raises(RuntimeError, match="4 samples are unfinished"):
            call()
    engine.abort_all()
    engine.retire()
    with pytest.raises(RetiredError, match="cannot step: weight version 2"):
        engine.step()
    assert engine.positions(PROMPTS[0]) is None


@pytest.mark.parametrize("line", ["{", '{"step": 1}', "[]", '{"prompt_token_ids": 3, "token_ids": [], "logprobs": []}'])
def test_broken_line_is_named(folder: Path, line: str) -> None:
    file = folder / "step-000003.jsonl"
    file.write_text(file.read_text() + line + "\n")
    with pytest.raises(ReplayError, match=r"step-000003\.jsonl:5 is not a saved sample"):
        read_rollouts(folder)


def test_nothing_saved_is_an_error(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.jsonl"):
        with pytest.raises(ReplayError, match="neither a rollouts file nor a folder"):
            read_rollouts(path)
    with pytest.raises(ReplayError, match="no saved samples"):
        ReplayEngine([])


@given(st.lists(st.floats(max_value=0, allow_nan=False, allow_infinity=False), max_size=20))
def test_logprobs_survive_to_the_bit(tmp_path_factory: pytest.TempPathFactory, values: list[float]) -> None:
    folder = tmp_path_factory.mktemp("bits")
    saved = Response(0, 0, tuple(range(len(values))), tuple(values), "length")
    save_rollouts(folder, 1, PROMPTS, [saved])
    (back,) = read_rollouts(folder)
    assert back.logprobs == saved.logprobs
