"""From a row's prompt to a chat of structured parts, and the media in the order in which they stand there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from rollplex.data.columns import Markers
from rollplex.data.media import Kind, MediaFile

KINDS: tuple[Kind, ...] = get_args(Kind)
_MARKER = re.compile("(<image>|<video>)")

Message = Mapping[str, Any]
Columned = Mapping[Kind, Sequence[MediaFile] | None]  # media of the row's columns; None: it has no such column


class RowFaultError(ValueError):
    """What is wrong with one row, in words that fit behind its file and number."""


def chat(prompt: Any, column: str, *, lenient: bool) -> list[Any]:
    """The prompt's messages. ``lenient``: a text is one message of the user, or a list of messages as JSON."""
    if lenient and isinstance(prompt, str):
        return _json_messages(prompt) or [{"role": "user", "content": prompt}]
    if not isinstance(prompt, list) or not prompt:
        also = "a text or " if lenient else ""
        raise RowFaultError(f"column {column!r} must be {also}a list of messages that is not empty")
    return prompt


def _json_messages(text: str) -> list[Any] | None:
    """ROLL writes ``messages`` as JSON text; anything but a list of messages is the prompt itself."""
    if not text.lstrip().startswith("["):
        return None
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        return None
    if isinstance(found, list) and found and all(isinstance(m, dict) and {"role", "content"} <= set(m) for m in found):
        return found
    return None


def structured(
    messages: Sequence[Any], column: str, columned: Columned, markers: Markers, file_of: Any
) -> tuple[tuple[Message, ...], tuple[MediaFile, ...]]:
    """Messages with a part ``{"type": "image"}`` or ``{"type": "video"}`` where a medium stands, and these media.

    Args:
        messages: of :func:`chat`; contents are texts or lists of parts.
        column: the messages' name, for errors.
        columned: media of the row's own columns, which markers and parts without a path take one after the other.
        markers: see :class:`rollplex.data.columns.Columns`.
        file_of: makes a MediaFile of (kind, path).

    Raises:
        RowFaultError: malformed messages, or not as many places as media.
    """
    standing = _standing(columned, markers)
    split = [_parts(message, f"{column}[{number}]", standing) for number, message in enumerate(messages)]
    flat = [part for content in split if not isinstance(content, str) for part in content]
    _check_counts(flat, columned)
    waiting = {kind: iter(columned.get(kind) or ()) for kind in KINDS}
    media = tuple(
        file_of(kind, part[kind]) if kind in part else next(waiting[kind])
        for part in flat
        if (kind := part["type"]) != "text"
    )
    plain = tuple(
        {
            **{key: value for key, value in message.items() if value is not None},
            "content": content if isinstance(content, str) else [_bare(part) for part in content],
        }
        for message, content in zip(messages, split, strict=True)
    )
    return plain, media


def _standing(columned: Columned, markers: Markers) -> frozenset[Kind]:
    """The kinds whose markers stand for media in this row."""
    present = frozenset(kind for kind in KINDS if columned.get(kind) is not None)
    if markers == "never":
        return frozenset()
    if markers == "with-column":
        return present
    if markers == "images-always":
        return frozenset(kind for kind in KINDS if kind == "image" or columned.get(kind))
    return frozenset(KINDS) if any(columned[kind] for kind in present) else frozenset()


def _parts(message: Any, at: str, standing: frozenset[Kind]) -> str | list[dict[str, Any]]:
    """A message's content: its text, or its parts, of which a medium's has its path under its kind or nothing."""
    if not isinstance(message, dict) or not isinstance(message.get("role"), str) or message.get("content") is None:
        raise RowFaultError(f"{at} must be an object with 'role' and 'content'")
    content = message["content"]
    if isinstance(content, str):
        return _split(content, standing)
    if not isinstance(content, list):
        raise RowFaultError(f"{at}.content must be a text or a list of parts")
    return [_part(part, f"{at}.content[{number}]") for number, part in enumerate(content)]


def _split(text: str, standing: frozenset[Kind]) -> str | list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for segment in _MARKER.split(text):
        if segment[1:-1] in standing and _MARKER.fullmatch(segment):
            parts.append({"type": segment[1:-1]})
        elif parts and parts[-1]["type"] == "text":
            parts[-1]["text"] += segment
        elif segment:
            parts.append({"type": "text", "text": segment})
    return parts if any(part["type"] != "text" for part in parts) else text


def _part(part: Any, here: str) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind not in ("text", *KINDS):
        raise RowFaultError(f"{here} has type {kind!r}; known: text, image, video")
    # parquet gives every part all keys, and a chat template asks which of them are there
    given = {key: value for key, value in part.items() if value is not None}
    value = given.get(kind)
    if kind != "text" and set(given) == {"type"}:
        return {"type": kind}
    if not isinstance(value, str) or (kind != "text" and not value):
        raise RowFaultError(f"{here} is of type {kind!r} but has no column {kind!r}; it has {', '.join(given)}")
    return {"type": kind, kind: value}


def _bare(part: dict[str, Any]) -> dict[str, Any]:
    return part if part["type"] == "text" else {"type": part["type"]}


def _check_counts(parts: Sequence[Mapping[str, Any]], columned: Columned) -> None:
    for kind in KINDS:
        places = sum(part["type"] == kind and kind not in part for part in parts)
        media = len(columned.get(kind) or ())
        if places != media:
            raise RowFaultError(
                f"its messages have {places} {'place' if places == 1 else 'places'} for {kind}s (<{kind}>), "
                f"but the row has {media}"
            )


def media_entries(value: Any) -> Iterator[tuple[int | None, Any]]:
    """(index in its list or None, entry) of a media column's value: one medium, or a list of them."""
    if isinstance(value, list):
        yield from enumerate(value)
    elif value is not None and value != "":
        yield None, value
