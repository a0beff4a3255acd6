"""Other trainers' datasets, read as they stand."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pytest
from pyarrow import parquet  # type: ignore[import-untyped, unused-ignore]

from rollplex.api.data import ColumnsSpec, DataSpec
from rollplex.api.errors import JobError
from rollplex.data.columns import PRESETS, Columns, columns_of
from rollplex.data.dataset import Row, read_rows
from rollplex.data.pixels import PixelRules
from rollplex.data.video import VideoBudget, read_media
from tests.foreign_sets import IMAGES, easyr1_folder, png, questions, roll_folder, verl_parquet

WHERE = "spec.data.train"
VERL, ROLL, EASYR1 = PRESETS["verl"], PRESETS["roll"], PRESETS["easyr1"]


def read_one(folder: Path, row: dict[str, Any], columns: Columns) -> Row:
    for name in ("a.png", "b.png", "v.mp4"):
        (folder / name).touch()
    (folder / "rows.jsonl").write_text(json.dumps(row))
    return read_rows(folder / "rows.jsonl", WHERE, columns)[0]


def fault(folder: Path, row: dict[str, Any], columns: Columns) -> str:
    with pytest.raises(JobError) as caught:
        read_one(folder, row, columns)
    (only,) = caught.value.faults
    assert only.path == WHERE
    assert "\n" not in only.message
    return only.message


def verl(content: Any, **media: Any) -> dict[str, Any]:
    return {"prompt": [{"role": "user", "content": content}], "reward_model": {"ground_truth": "x"}, **media}


def easyr1(problem: str, **media: Any) -> dict[str, Any]:
    return {"problem": problem, "answer": "x", **media}


def content(row: Row) -> Any:
    return row.messages[-1]["content"]


IMAGE, VIDEO = {"type": "image"}, {"type": "video"}


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def test_verl_parquet_is_read_as_it_stands(
    tmp_path: Path, shapes_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked = questions(shapes_folder, 8)
    with caplog.at_level(logging.INFO):
        rows = read_rows(verl_parquet(tmp_path, shapes_folder, 8), WHERE, VERL)
    assert "8 rows (4 image, 4 video)" in caplog.text
    assert [row.id for row in rows] == [f"train:{number}" for number in range(1, 9)]
    assert [row.answer for row in rows] == [answer for _, _, answer in asked]
    assert content(rows[0]) == [IMAGE, text(asked[0][1])]
    assert content(rows[1]) == [VIDEO, text(asked[1][1])]
    assert rows[1].media[0].path == str(asked[1][0])
    assert rows[0].fields["images"] == [{"bytes": None, "path": None}]  # rewards get the row without its pixels
    assert rows[7].fields["extra_info"] == {"split": "train", "index": 7, "question": asked[7][1]}


def test_bytes_in_parquet_are_the_pixels_of_the_file(tmp_path: Path, shapes_folder: Path) -> None:
    rows = read_rows(verl_parquet(tmp_path, shapes_folder, 8), WHERE, VERL)
    (tmp_path / "alone.png").write_bytes(png(questions(shapes_folder, 8)[4][0]))
    alone = read_one(tmp_path, verl("<image>", images=["alone.png"]), VERL)
    rules = PixelRules()
    (inside,) = rows[4].media  # the fifth row lies in the second row group
    assert inside.cell is not None
    assert (inside.cell.row_group, inside.cell.row) == (1, 1)
    frames = read_media(inside, VideoBudget(), rules)
    assert frames.pixels.tobytes() == read_media(alone.media[0], VideoBudget(), rules).pixels.tobytes()
    assert inside.content_key() == alone.media[0].content_key()
    assert inside.name.endswith("train.parquet (row group 1, row 1, images[0])")


def test_roll_folder_is_read_as_it_stands(tmp_path: Path, shapes_folder: Path) -> None:
    rows = read_rows(roll_folder(tmp_path, shapes_folder, 2), WHERE, ROLL)
    assert [row.modality for row in rows] == ["image", "image", "text"]
    assert content(rows[0]) == [IMAGE, text(questions(shapes_folder, 1)[0][1])]
    assert rows[0].media[0].path == str(tmp_path / "0.png")
    assert [message["role"] for message in rows[2].messages] == ["system", "user"]  # `messages` goes before `prompt`
    assert (rows[2].id, rows[2].answer) == ("text-0", "yes")


def test_easyr1_folder_is_read_as_it_stands(tmp_path: Path, shapes_folder: Path) -> None:
    rows = read_rows(easyr1_folder(tmp_path, shapes_folder, 3), WHERE, EASYR1)
    asked = questions(shapes_folder, 3)
    assert [row.modality for row in rows] == ["video"] * 3
    assert content(rows[2]) == [VIDEO, text(asked[2][1])]
    assert rows[2].answer == asked[2][2]


@pytest.mark.parametrize(
    ("row", "columns", "expected"),
    [
        (verl("a<image>b<video>", images=["a.png"], videos=["v.mp4"]), VERL, [text("a"), IMAGE, text("b"), VIDEO]),
        (verl("<image><image>?", images=["a.png", "b.png"]), VERL, [IMAGE, IMAGE, text("?")]),
        (verl("the tag <image>?", images=[]), VERL, "the tag <image>?"),
        (verl("the tag <image>?"), VERL, "the tag <image>?"),
        (verl([text("the tag <image>"), IMAGE], images=["a.png"]), VERL, [text("the tag <image>"), IMAGE]),
        (verl("<image>?", images="a.png"), VERL, [IMAGE, text("?")]),
        (easyr1("<image>like <video>?", images=["a.png"]), EASYR1, [IMAGE, text("like <video>?")]),
        (easyr1("the tag <image>?"), EASYR1, "the tag <image>?"),
        (easyr1("the tag <image>?", images=None), EASYR1, "the tag <image>?"),
        (verl("<image>like <video>?", images=["a.png"]), ROLL, [IMAGE, text("like <video>?")]),
    ],
)
def test_markers_stand_for_media_as_the_trainer_means_them(
    tmp_path: Path, row: dict[str, Any], columns: Columns, expected: Any
) -> None:
    assert content(read_one(tmp_path, row, columns)) == expected


@pytest.mark.parametrize(
    ("row", "columns", "says"),
    [
        (verl("<image><image>", images=["a.png"]), VERL, "have 2 places for images (<image>), but the row has 1"),
        (verl("?", images=["a.png"]), VERL, "have 0 places for images (<image>), but the row has 1"),
        (verl("<image><video>", images=["a.png"]), VERL, "have 1 place for videos (<video>), but the row has 0"),
        (easyr1("the tag <image>?", images=[]), EASYR1, "have 1 place for images (<image>), but the row has 0"),
        (verl("the tag <image>?", images=[]), ROLL, "have 1 place for images (<image>), but the row has 0"),
        (verl("<image>", images=["https://a.b/c.png"]), VERL, "column 'images'[0] is not a local file (https://a.b/c"),
        (verl("<image>", images=[{"url": "a.png"}]), VERL, "as bytes in a parquet file; it is a mapping with url"),
        (verl("<video>", videos=[{"video": ["1.png"]}]), VERL, "column 'videos'[0] must give a video by path"),
        (verl("<image>", images=["none.png"]), VERL, "none.png does not exist"),
        (
            {"question": "?", "answer": "x"},
            EASYR1,
            "rows.jsonl:1: column 'problem' or 'prompt' is missing; the row has question, answer",
        ),
        (
            {"prompt": "?", "reward_model": {"style": "rule"}, "answer": "x"},
            VERL,
            "column 'reward_model.ground_truth' is missing; 'reward_model' has style",
        ),
        (
            {"prompt": "?", "reward_model": "x"},
            VERL,
            "is missing; column 'reward_model' is not nested; the row has prompt, reward_model",
        ),
        ({"prompt": "?", "reward_model": {"ground_truth": None}}, VERL, "'reward_model.ground_truth' is null"),
        ({"prompt": 3, "reward_model": {"ground_truth": "x"}}, VERL, "'prompt' must be a text or a list of messages"),
    ],
)
def test_a_row_that_does_not_fit_is_one_line(tmp_path: Path, row: dict[str, Any], columns: Columns, says: str) -> None:
    assert says in fault(tmp_path, row, columns)


def test_columns_by_hand_reach_into_nested_ones(tmp_path: Path) -> None:
    spec = ColumnsSpec(prompt="task.question", answer="task.label", images="frames", id="meta.uid")
    columns = columns_of(DataSpec(train="-", columns=spec))
    row = {
        "task": {"question": "<image>?", "label": 3},
        "frames": [{"path": "a.png"}],
        "meta": {"uid": 17},
        "videos": ["not a column of this set"],
    }
    found = read_one(tmp_path, row, columns)
    assert (found.id, found.answer, content(found)) == ("17", 3, [IMAGE, text("?")])
    assert found.fields["videos"] == row["videos"]
    del row["task"]["label"]  # type: ignore[attr-defined]
    assert "column 'task.label' is missing; 'task' has question" in fault(tmp_path, row, columns)


def test_columns_by_hand_need_no_answer_and_a_name_may_have_a_dot(tmp_path: Path) -> None:
    columns = columns_of(DataSpec(train="-", columns=ColumnsSpec(prompt="the.prompt")))
    found = read_one(tmp_path, {"the.prompt": "2 + 2?"}, columns)
    assert (found.answer, content(found), found.modality) == (None, "2 + 2?", "text")


def test_parquet_parts_have_no_keys_that_their_row_leaves_out(tmp_path: Path) -> None:
    """Parquet gives every struct all keys; a template that asks for `'video' in part` must not see an empty one."""
    part = pa.struct({"type": pa.string(), "text": pa.string(), "image": pa.string()})
    schema = pa.schema(
        {
            "messages": pa.list_(pa.struct({"role": pa.string(), "content": pa.list_(part), "name": pa.string()})),
            "answer": pa.string(),
        }
    )
    (tmp_path / "a.png").touch()
    parts = [{"type": "image", "image": "a.png"}, {"type": "text", "text": "?"}]
    table = pa.Table.from_pylist([{"messages": [{"role": "user", "content": parts}], "answer": "x"}], schema)
    parquet.write_table(table, tmp_path / "a.parquet")
    (row,) = read_rows(tmp_path / "a.parquet", WHERE)
    assert row.messages == ({"role": "user", "content": [IMAGE, text("?")]},)
    assert row.media[0].path == str(tmp_path / "a.png")


def test_an_image_column_without_bytes_is_taken_by_path(tmp_path: Path) -> None:
    (tmp_path / "a.png").touch()
    row = {"problem": "<image>?", "answer": "x", "images": [{"bytes": None, "path": "a.png"}]}
    schema = pa.schema({"problem": pa.string(), "answer": pa.string(), "images": IMAGES})
    parquet.write_table(pa.Table.from_pylist([row], schema), tmp_path / "a.parquet")
    (found,) = read_rows(tmp_path / "a.parquet", WHERE, EASYR1)
    assert (found.media[0].path, found.media[0].cell) == (str(tmp_path / "a.png"), None)


def test_reading_stops_once_it_is_clear_that_a_set_has_other_columns(tmp_path: Path) -> None:
    table = pa.table({"question": ["?"] * 5000, "answer": ["x"] * 5000})
    parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(JobError) as caught:
        read_rows(tmp_path / "a.parquet", WHERE, EASYR1)
    assert str(caught.value).endswith(
        "a.parquet:1: column 'problem' or 'prompt' is missing; the row has question, answer "
        "(and so have at least 999 more rows)"
    )


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.csv", "a,b", "a.csv is of no known kind; a set is a .jsonl, .json, .parquet file"),
        ("a.parquet", "not parquet at all", "a.parquet cannot be read: Parquet magic bytes not found"),
        ("a.json", "[{", "a.json cannot be read: "),
    ],
)
def test_a_file_of_another_kind_is_one_line(tmp_path: Path, name: str, content: str, says: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(JobError) as caught:
        read_rows(tmp_path / name, WHERE)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_of_two_kinds_is_ambiguous(tmp_path: Path) -> None:
    (tmp_path / "a.json").touch()
    (tmp_path / "a.jsonl").touch()
    with pytest.raises(JobError, match=r"mixes \.json and \.jsonl files; name the one file to read"):
        read_rows(tmp_path, WHERE)
