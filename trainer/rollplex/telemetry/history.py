"""What a run folder has recorded, cut back to a step: a killed attempt may have gone on past its checkpoint."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

_ROLLOUTS = re.compile(r"step-(\d+)\..+")


def cut_lines(path: Path, step: int) -> None:
    """Keep the lines of a JSONL file whose ``step`` is at most this; one that a crash cut short goes too.

    A missing file is fine. The file is replaced as a whole: killed at any moment, it is the old one or the new one.
    """
    if not path.exists():
        return
    part = path.with_name(f"{path.name}.part")
    with path.open() as lines, part.open("w") as kept:
        for line in lines:
            if line.endswith("\n") and json.loads(line)["step"] <= step:
                kept.write(line)
    os.replace(part, path)


def cut_rollouts(folder: Path, step: int) -> None:
    """Remove the saved rollouts of later steps: their responses come from weights that are lost."""
    if folder.is_dir():
        for path in folder.iterdir():
            match = _ROLLOUTS.fullmatch(path.name)
            if match and int(match[1]) > step:
                path.unlink()
