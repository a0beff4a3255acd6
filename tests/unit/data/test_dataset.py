"""Every fault of a JSONL file is one line that names the file's line and the column."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from rollplex.api.errors import JobError
from rollplex.data.dataset import read_rows
from rollplex.data.media import MediaFile

WHERE = "spec.data.train"


def row(**changes: Any) -> dict[str, Any]:
    content = [{"type": "video", "video": "a.mp4"}, {"type": "text", "text": "What?"}]
    fields = {"id": "1", "messages": [{"role": "user", "content": content}], "answer": "red"} | changes
    return {key: value for key, value in fields.items() if value is not ...}


def parts(*content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(content)}]


def write(folder: Path, *rows: Any, name: str = "train.jsonl") -> Path:
    (folder / "a.mp4").touch()
    (folder / "a.png").touch()
    path = folder / name
    path.write_text("".join((item if isinstance(item, str) else json.dumps(item)) + "\n" for item in rows))
    return path


def test_read_rows_keeps_every_column_and_finds_media_beside_the_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "elsewhere.png").touch()
    image = {"type": "image", "image": str(tmp_path / "elsewhere.png")}
    text_only = row(id=..., messages=[{"role": "user", "content": "1 + 1?"}], answer=2)
    path = write(
        tmp_path, row(kind="colour"), "", text_only, row(id="3", messages=parts(image, {"type": "text", "text": ""}))
    )
    with caplog.at_level(logging.INFO):
        rows = read_rows(path, WHERE)
    assert [item.id for item in rows] == ["1", "train:3", "3"]
    assert rows[0].media == (MediaFile("video", str(tmp_path / "a.mp4")),)
    assert rows[0].fields["kind"] == "colour"
    assert rows[1].media == ()
    assert rows[1].answer == 2
    assert rows[2].media == (MediaFile("image", str(tmp_path / "elsewhere.png")),)
    assert "3 rows (1 image, 1 text, 1 video)" in caplog.text


def test_a_folder_is_read_file_by_file(tmp_path: Path) -> None:
    write(tmp_path, row(id="b"), name="2.jsonl")
    write(tmp_path, row(id="a"), name="1.jsonl")
    assert [item.id for item in read_rows(tmp_path, WHERE)] == ["a", "b"]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("{", r"train.jsonl:2: not JSON: "),
        ("[1]", "train.jsonl:2: a row must be a JSON object"),
        (row(answer=...), "train.jsonl:2: column 'answer' is missing; the row has id, messages"),
        (row(answer=None), "column 'answer' is null"),
        (row(messages=..., prompt="What?"), "column 'messages' is missing; the row has id, answer, prompt"),
        (row(messages=[]), "column 'messages' must be a list of messages that is not empty"),
        (row(messages="What?"), "column 'messages' must be a list"),
        (row(messages=["What?"]), r"messages\[0\] must be an object with 'role' and 'content'"),
        (row(messages=[{"role": "user"}]), r"messages\[0\] must be an object with 'role' and 'content'"),
        (row(messages=[{"role": "user", "content": 3}]), r"messages\[0\].content must be a text or a list of parts"),
        (
            row(messages=parts({"type": "video", "path": "a.mp4"})),
            r"messages\[0\].content\[0\] is of type 'video' but has no column 'video'; it has type, path",
        ),
        (
            row(messages=parts({"type": "image_url", "image_url": "a.png"})),
            r"messages\[0\].content\[0\] has type 'image_url'; known: text, image, video",
        ),
        (row(messages=parts({"type": "text"})), "is of type 'text' but has no column 'text'"),
        (row(messages=parts("What?")), r"content\[0\] has type None"),
        (
            row(messages=[{"role": "user", "content": "<video>What?"}], videos=["a.mp4"]),
            "column 'videos' holds media, but no message has a part for it; put ",
        ),
        (row(), "train.jsonl:2: id '1' is that of train.jsonl:1 too; ids must differ"),
        (
            row(id="2", messages=parts({"type": "video", "video": "no.mp4"})),
            "train.jsonl:2: row 2: media file .*no.mp4 does not exist",
        ),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, bad: Any, message: str) -> None:
    path = write(tmp_path, row(), bad)
    with pytest.raises(JobError, match=message) as caught:
        read_rows(path, WHERE)
    assert [fault.path for fault in caught.value.faults] == [WHERE]
    assert "\n" not in str(caught.value)


def test_many_faults_are_counted_rather_than_listed(tmp_path: Path) -> None:
    path = write(tmp_path, *[row(id=str(number), answer=...) for number in range(40)])
    with pytest.raises(JobError) as caught:
        read_rows(path, WHERE)
    (fault,) = caught.value.faults
    assert fault.message.endswith(
        "train.jsonl:1: column 'answer' is missing; the row has id, messages (and so have 39 more rows)"
    )


def test_equal_ids_are_named_where_they_stand_also_in_two_files(tmp_path: Path) -> None:
    write(tmp_path, row(id="a"), "", row(id="b"), name="1.jsonl")
    write(tmp_path, row(id="c"), row(id="b"), row(id="a"), row(id="b"), name="2.jsonl")
    with pytest.raises(JobError) as caught:
        read_rows(tmp_path, WHERE)
    assert [fault.message for fault in caught.value.faults] == [
        f"{tmp_path / '2.jsonl'}:2: id 'b' is that of 1.jsonl:3 too; ids must differ (and so have 1 more rows)",
        f"{tmp_path / '2.jsonl'}:3: id 'a' is that of 1.jsonl:1 too; ids must differ",
    ]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: folder / "none.jsonl", "none.jsonl does not exist"),
        (lambda folder: folder, "has no \\*.jsonl, \\*.json, \\*.parquet file"),
        (lambda folder: write(folder), "train.jsonl has no rows"),
        (lambda folder: write(folder, "", " "), "train.jsonl has no rows"),
    ],
)
def test_nothing_to_read_is_an_error(tmp_path: Path, make: Any, message: str) -> None:
    with pytest.raises(JobError, match=f"^{WHERE}: .*{message}$"):
        read_rows(make(tmp_path), WHERE)


def test_a_file_that_is_no_text_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_bytes(b"\x80\x81\xff\n")
    with pytest.raises(JobError, match=r"train\.jsonl cannot be read"):
        read_rows(tmp_path / "train.jsonl", WHERE)
