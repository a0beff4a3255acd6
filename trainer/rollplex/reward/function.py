"""A reward function of the user's, as a worker process loads and calls it."""

from __future__ import annotations

import importlib.util
import inspect
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any


class RewardFunctionError(Exception):
    """The function cannot be loaded, or returned something other than a finite number."""


@cache
def load(reference: str) -> Callable[[str, Any, Mapping[str, Any]], float]:
    """The function of ``FILE.py:FUNCTION``; its file is imported once a process, with its folder importable."""
    path, _, name = reference.rpartition(":")
    file = Path(path).resolve()
    if not file.is_file():
        raise RewardFunctionError(f"there is no file {path}")
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(f"rollplex_reward_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise RewardFunctionError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickle look their module up
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever a user file raises)
        raise RewardFunctionError(f"importing {path} raised {type(error).__name__}: {error}") from None
    function = getattr(module, name, None)
    if not callable(function):
        names = [key for key, value in vars(module).items() if inspect.isfunction(value) and not key.startswith("_")]
        raise RewardFunctionError(f"{path} has no function {name}; it has {', '.join(names) or 'none'}")
    return function  # type: ignore[no-any-return]


def load_all(references: Sequence[str]) -> None:
    """Import every file, so that no sample's time limit pays for it."""
    for reference in references:
        load(reference)


def check(reference: str) -> None:
    """Raise :class:`RewardFunctionError` unless the function loads and takes (response_text, answer, row)."""
    function = load(reference)
    try:
        signature = inspect.signature(function)
    except ValueError:
        return  # some built-in callables tell nothing
    try:
        signature.bind("", None, {})
    except TypeError as error:
        raise RewardFunctionError(f"it is called as f(response_text, answer, row), but {error}") from None


def call(reference: str, response_text: str, answer: Any, row: Mapping[str, Any]) -> float:
    """The function's value; raises what it raises, or RewardFunctionError if that is not a finite number."""
    value = load(reference)(response_text, answer, row)
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise RewardFunctionError(f"it returned {value!r}, which is not a number") from None
    if not math.isfinite(number):
        raise RewardFunctionError(f"it returned {number}")
    return number
