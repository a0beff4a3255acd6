"""From a prompt's token ids back to the chat that a person can read: what the model saw, not what the file says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tokenizers import Tokenizer

from rollplex.api.shapes import shape_from_folder

# Qwen's marks around a turn and around a medium; in a prompt they are ids, never text
_TURN, _END = "<|im_start|>", "<|im_end|>"
_AROUND_MEDIA = ("<|vision_start|>", "<|vision_end|>")


@dataclass(frozen=True)
class Medium:
    """Where an image or a video stands in a text."""

    kind: str


@dataclass
class Turn:
    """One message, text and media in order."""

    role: str
    pieces: list[str | Medium] = field(default_factory=list)


class ChatReader:
    """Decodes with the tokenizer of a model folder.

    Raises:
        ValueError: the folder has no tokenizer.json, or no config that we know.
    """

    def __init__(self, folder: str | Path) -> None:
        file = Path(folder) / "tokenizer.json"
        if not file.is_file():
            raise ValueError(f"{file} does not exist")
        self._tokenizer = Tokenizer.from_file(str(file))
        shape = shape_from_folder(folder)
        self._placeholders = {shape.image_token: Medium("image"), shape.video_token: Medium("video")}
        self._turn, self._end = map(self._tokenizer.token_to_id, (_TURN, _END))
        self._around = set(map(self._tokenizer.token_to_id, _AROUND_MEDIA))

    def turns(self, ids: Sequence[int]) -> list[Turn]:
        """The messages in order, those without any content left out; a run of one placeholder is one medium."""
        turns = [Turn("")]
        text: list[int] = []
        last: int | None = None

        def close() -> None:
            if text:
                turns[-1].pieces.append(self.text(text))
                text.clear()

        for token in ids:
            if token in self._placeholders:
                if token != last:
                    close()
                    turns[-1].pieces.append(self._placeholders[token])
            elif token in (self._turn, self._end):
                close()
                turns.append(Turn(""))  # what stands between an end and the next beginning is a line break
            elif token in self._around:
                close()
            else:
                text.append(token)
            last = token
        close()
        for turn in turns[1:]:
            _take_role(turn)
        return [turn for turn in turns if any(isinstance(piece, Medium) or piece.strip() for piece in turn.pieces)]

    def text(self, ids: Sequence[int]) -> str:
        """The text of some ids, special tokens spelled out."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=False)
        return text


def _take_role(turn: Turn) -> None:
    """The first line of a turn is its role."""
    first = turn.pieces[0] if turn.pieces else None
    if isinstance(first, str):
        turn.role, _, rest = first.partition("\n")
        turn.pieces[:1] = [rest] if rest else []
