"""Datasets as other trainers' own scripts write them, with real media: questions about the shapes set."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import av
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
from pyarrow import parquet  # type: ignore[import-untyped, unused-ignore]

# What `datasets` makes of a list of images, in parquet
IMAGES = pa.list_(pa.struct({"bytes": pa.binary(), "path": pa.string()}))
CHAT = pa.list_(pa.struct({"role": pa.string(), "content": pa.string()}))


def questions(shapes: Path, count: int) -> list[tuple[Path, str, str]]:
    """(video, question, answer) of the first rows of a set by ``rollplex data shapes``."""
    rows = [json.loads(line) for line in (shapes / "train.jsonl").read_text().splitlines()[:count]]
    found = []
    for row in rows:
        video, text = row["messages"][0]["content"]
        found.append((shapes / video["video"], text["text"], row["answer"]))
    return found


def png(video: Path) -> bytes:
    """The first frame of a video as PNG."""
    with av.open(str(video)) as container:
        frame = next(container.decode(video=0))
    content = BytesIO()
    frame.to_image().save(content, "PNG")
    return content.getvalue()


def verl_parquet(folder: Path, shapes: Path, count: int) -> Path:
    """verl, examples/data_preprocess/geo3k.py: messages, images as bytes, the truth in reward_model; videos by path."""
    rows = []
    for number, (video, question, answer) in enumerate(questions(shapes, count)):
        as_image = number % 2 == 0
        rows.append(
            {
                "data_source": "shapes",
                "prompt": [{"role": "user", "content": f"<{'image' if as_image else 'video'}>{question}"}],
                "images": [{"bytes": png(video), "path": None}] if as_image else [],
                "videos": [] if as_image else [{"video": f"file://{video}"}],
                "ability": "perception",
                "reward_model": {"style": "rule", "ground_truth": answer},
                "extra_info": {"split": "train", "index": number, "question": question},
            }
        )
    schema = pa.schema(
        {
            "data_source": pa.string(),
            "prompt": CHAT,
            "images": IMAGES,
            "videos": pa.list_(pa.struct({"video": pa.string()})),
            "ability": pa.string(),
            "reward_model": pa.struct({"style": pa.string(), "ground_truth": pa.string()}),
            "extra_info": pa.struct({"split": pa.string(), "index": pa.int64(), "question": pa.string()}),
        }
    )
    path = folder / "train.parquet"
    parquet.write_table(pa.Table.from_pylist(rows, schema), path, row_group_size=3)
    return path


def roll_folder(folder: Path, shapes: Path, count: int) -> Path:
    """ROLL: its VLM schema (Orsta) as JSONL with images by path, and its text schema with messages as JSON text."""
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for number, (video, question, answer) in enumerate(questions(shapes, count)):
        (folder / f"{number}.png").write_bytes(png(video))
        rows.append(
            {
                "data_source": "shapes",
                "images": [f"{number}.png"],
                "prompt": [{"content": f"<image>{question}", "role": "user"}],
                "ability": "perception",
                "reward_model": {"answer": answer, "ground_truth": answer, "accuracy_ratio": 1.0, "format_ratio": 0.0},
                "extra_info": {"id": None, "image_path": f"{number}.png"},
            }
        )
    messages = [{"role": "system", "content": "Answer in one word."}, {"role": "user", "content": "Is red a colour?"}]
    rows.append(
        {
            "id": "text-0",
            "source": "made up",
            "prompt": "Is red a colour?",
            "messages": json.dumps(messages),
            "ground_truth": "yes",
            "tag": "text",
        }
    )
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def easyr1_folder(folder: Path, shapes: Path, count: int) -> Path:
    """EasyR1 (as hiyouga/geometry3k): problem and answer, and one media column in each of its files."""
    folder.mkdir(parents=True, exist_ok=True)
    asked = questions(shapes, count)
    rows = [{"videos": [str(video)], "problem": f"<video>{text}", "answer": answer} for video, text, answer in asked]
    (folder / "train.json").write_text(json.dumps(rows))
    return folder
