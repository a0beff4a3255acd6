"""From messages and decoded media to a :class:`rollplex.batch.Prompt`: the one place where text becomes token ids.

What a user wrote stays text. A literal ``<|video_pad|>`` in a question becomes ordinary tokens, never a placeholder:
only the chat template can put placeholders into a prompt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rollplex.api.shapes import shape_from_folder
from rollplex.batch import Media, Prompt
from rollplex.positions import rope_positions

Messages = Sequence[Mapping[str, Any]]


class PromptError(ValueError):
    """A row whose messages and media do not make a prompt; the message names the row."""


class PromptTooLongError(PromptError):
    """A prompt above the limit: dropped as a whole, since a cut could fall inside a medium's tokens."""


class PromptBuilder:
    """Builds prompts with the tokenizer and the chat template of a model folder.

    Args:
        folder: Hugging Face folder with config.json, tokenizer and chat template.
        max_prompt_tokens: longest prompt allowed, placeholders expanded.

    Raises:
        ValueError: no chat template, or an unsupported model.
    """

    def __init__(self, folder: str | Path, max_prompt_tokens: int) -> None:
        from transformers import AutoTokenizer

        self.shape = shape_from_folder(folder)
        self.max_prompt_tokens = max_prompt_tokens
        self.tokenizer = AutoTokenizer.from_pretrained(str(folder))
        processors_own = Path(folder) / "chat_template.json"
        if processors_own.exists():
            self.tokenizer.chat_template = json.loads(processors_own.read_text())["chat_template"]
        if not self.tokenizer.chat_template:
            raise ValueError(f"{folder} has no chat template; add chat_template.jinja to model.path")
        for token in (self.shape.image_token, self.shape.video_token):
            piece = self.tokenizer.convert_ids_to_tokens(token) if token < len(self.tokenizer) else None
            if piece is None or piece not in self.tokenizer.all_special_tokens + list(self.tokenizer.get_added_vocab()):
                raise ValueError(
                    f"{folder}: its tokenizer has no placeholder {token}, which config.json names; "
                    "model.path must hold the model's own tokenizer.json and tokenizer_config.json"
                )
        self._placeholders = {self.shape.image_token: "image", self.shape.video_token: "video"}
        added = self.tokenizer.added_tokens_decoder.values()
        self._special = tuple(token.content for token in added if token.special)

    def build(
        self,
        row_id: str,
        messages: Messages,
        media: Sequence[Media],
        *,
        answer: Any = None,
        row: Mapping[str, Any] | None = None,
    ) -> Prompt:
        """Build one prompt.

        Args:
            row_id: names the prompt, in errors too.
            messages: the chat; content is a string or a list of parts of type text, image or video.
            media: decoded, in the order of the parts.
            answer: handed on to rewards.
            row: the dataset's row, handed on to rewards.

        Raises:
            PromptTooLongError: more than ``max_prompt_tokens``.
            PromptError: placeholders and media do not match, or the last token is a placeholder.
        """
        template_ids = self.token_ids(row_id, messages)
        ids: list[int] = []
        starts: list[tuple[int, ...]] = []
        for token in template_ids:
            kind = self._placeholders.get(token)
            if kind is None:
                ids.append(token)
                continue
            found = len(starts)
            if found == len(media) or media[found].kind != kind:
                have = [item.kind for item in media]
                raise PromptError(f"row {row_id}: placeholder {found + 1} is for {kind}, but its media are {have}")
            starts.append(self._expand(token, media[found], ids))
        if len(starts) != len(media):
            raise PromptError(
                f"row {row_id}: {len(media)} media, but the chat template made {len(starts)} placeholders"
            )
        if len(ids) > self.max_prompt_tokens:
            raise PromptTooLongError(
                f"row {row_id}: the prompt has {len(ids)} tokens; data.maxPromptTokens is {self.max_prompt_tokens}"
            )
        if not ids or ids[-1] in self._placeholders:
            raise PromptError(f"row {row_id}: the prompt ends in a placeholder; put text or a template's turn after it")
        vision = self.shape.vision
        positions = rope_positions(
            len(ids), media, starts, merge=vision.merge, tokens_per_second=vision.tokens_per_second
        )
        return Prompt(row_id, tuple(ids), positions, tuple(media), tuple(starts), answer, row or {})

    def _expand(self, token: int, media: Media, ids: list[int]) -> tuple[int, ...]:
        """Append what stands for a medium in the place of its placeholder; where its runs of placeholders begin."""
        tokens = media.tokens(self.shape.vision.merge)
        if token == self.shape.image_token or not self.shape.family.time_as_text:
            ids += [token] * tokens
            return (len(ids) - tokens,)
        starts = []
        for seconds in media.times(self.shape.vision.temporal_patch):
            # as transformers' processor and vLLM write it; the chat template's own two markers stay around all of it
            ids += [*self._encode(f"<{seconds:.1f} seconds>", literal=True), self.shape.vision_start_token]
            starts.append(len(ids))
            ids += [token] * (tokens // media.grid[0]) + [self.shape.vision_end_token]
        return tuple(starts)

    def text_too_long(self, row_id: str, messages: Messages) -> bool:
        """Whether a prompt is above the limit even if each of its media took a single token.

        A token is a byte at least, so a text of fewer bytes than the limit is taken for short enough without encoding
        it (a chat template adds a few; :meth:`build` counts exactly).
        """
        size = sum(len(text.encode()) for message in messages for text in _texts(message))
        return size > self.max_prompt_tokens and len(self.token_ids(row_id, messages)) > self.max_prompt_tokens

    def token_ids(self, row_id: str, messages: Messages) -> list[int]:
        """Ids of the rendered chat with one placeholder a medium, as Hugging Face's processor sees them."""
        texts = [text for message in messages for text in _texts(message)]
        if not any(special in text for text in texts for special in self._special):
            return self._encode(self._render(messages), literal=False)
        # Some text spells a special token. Render with marks in the texts' places; encode template and texts apart.
        marks = [f"\ue000{number}\ue001" for number in range(len(texts))]
        rest = self._render(_with_texts(messages, marks))
        ids: list[int] = []
        for mark, text in zip(marks, texts, strict=True):
            before, found, rest = rest.partition(mark)
            if not found:
                raise PromptError(f"row {row_id}: text spells a special token, and the chat template reorders texts")
            ids += self._encode(before, literal=False) + self._encode(text, literal=True)
        return ids + self._encode(rest, literal=False)

    def _render(self, messages: Messages) -> str:
        text: str = self.tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
        return text

    def _encode(self, text: str, *, literal: bool) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=literal)
        return ids


def _texts(message: Mapping[str, Any]) -> list[str]:
    content = message["content"]
    return [content] if isinstance(content, str) else [part["text"] for part in content if part["type"] == "text"]


def _with_texts(messages: Messages, texts: Sequence[str]) -> list[dict[str, Any]]:
    """The messages with their texts replaced, in order."""
    following = iter(texts)
    replaced = []
    for message in messages:
        content = message["content"]
        if isinstance(content, str):
            content = next(following)
        else:
            content = [{**part, "text": next(following)} if part["type"] == "text" else part for part in content]
        replaced.append({**message, "content": content})
    return replaced
