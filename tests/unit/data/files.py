"""Small files for tests to decode."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Video = Callable[..., Path]  # the fixture ``video``


def numbered(count: int, height: int = 56, width: int = 84) -> list[np.ndarray[Any, np.dtype[np.uint8]]]:
    """Frames that say their number: brightness steps of 4, far above what a good encoder changes."""
    return [np.full((height, width, 3), 4 * index, dtype=np.uint8) for index in range(count)]
