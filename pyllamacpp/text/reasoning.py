"""Tells a model's thoughts from its answer, for streams and whole texts alike.

Which markers a model puts around its thoughts is read off its chat template. Thoughts come first: an
opening marker counts at the beginning of a text only, or where the prompt has opened them already. The first
closing marker ends them, wherever the model writes it; after it, whatever looks like a marker is answer.
White space at both ends of the thoughts, and before an answer that follows them, belongs to neither. Thoughts
that are never closed, as in an answer that was cut, are thoughts to the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .chat import ChatTemplate
    from .tokenizer import Tokenizer


class Markers(NamedTuple):
    """What stands around thoughts. plain: what an answer without thoughts may begin with."""

    opens: str
    closes: str
    plain: str = ""


# Every kind that published templates use, those first that say more than the later ones.
KNOWN = (
    Markers("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>",
            "<|channel|>final<|message|>"),
    Markers("<|channel>thought\n", "<channel|>"),
    Markers("<|START_THINKING|>", "<|END_THINKING|>"),
    Markers("<seed:think>", "</seed:think>"),
    Markers("<mm:think>", "</mm:think>"),
    Markers("[THINK]", "[/THINK]"),
    Markers("Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]"),
    Markers("<think>", "</think>"),
)  # fmt: skip

Piece = tuple[bool, str]  # is it a thought; its text


def markers_of(source: str) -> Markers | None:
    """The markers that a chat template knows; None if it knows of no thoughts. source: Jinja2 text."""
    for markers in KNOWN:
        if markers.opens.strip() in source and (markers.closes in source or markers.plain):
            return markers
    return KNOWN[-1] if "</think>" in source else None


class Splitter:
    """Splits the text of one answer, whatever pieces it comes in.

    opened: the prompt has opened the thoughts.
    """

    def __init__(self, markers: Markers, *, opened: bool) -> None:
        self._markers = markers
        self._held = ""
        self._thinking = opened
        self._begun = opened  # thoughts or answer: it is known which
        self._skip_space = opened

    def feed(self, text: str) -> list[Piece]:
        """What the text settles; what may be part of a marker, or space at an end, waits for the next."""
        self._held += text
        pieces: list[Piece] = []
        if not self._begun:
            self._begin()
        if self._begun and self._thinking:
            self._think(pieces)
        if self._begun and not self._thinking:
            self._give(pieces, False, len(self._held))
        return pieces

    def finish(self) -> list[Piece]:
        """What is left at the end of the text."""
        rest, self._held = self._held, ""
        if self._thinking:
            rest = rest.rstrip()
        return [(self._thinking, rest)] if rest else []

    def _begin(self) -> None:
        """Find out what the text begins with, if it is long enough to say."""
        start = self._held.lstrip()
        for marker in (self._markers.opens, self._markers.plain):
            if not marker:
                continue
            if start.startswith(marker):
                self._thinking = marker == self._markers.opens
                self._held, self._begun, self._skip_space = start[len(marker) :], True, self._thinking
                return
            if marker.startswith(start):
                return
        self._begun = True

    def _think(self, pieces: list[Piece]) -> None:
        if self._skip_space:
            self._held = self._held.lstrip()
            self._skip_space = not self._held
        at = self._held.find(self._markers.closes)
        if at >= 0:
            rest = self._held[at + len(self._markers.closes) :]
            self._held = self._held[:at].rstrip()
            self._give(pieces, True, len(self._held))
            self._thinking, self._held, self._skip_space = False, rest, True
            return
        settled = len(self._held) - _overlap(self._held, self._markers.closes)
        self._give(pieces, True, len(self._held[:settled].rstrip()))

    def _give(self, pieces: list[Piece], thought: bool, n: int) -> None:
        """Hand out the first n characters held."""
        if not thought and self._skip_space:
            self._held = self._held.lstrip()
            n, self._skip_space = len(self._held), not self._held
        if n:
            pieces.append((thought, self._held[:n]))
            self._held = self._held[n:]


def _overlap(text: str, marker: str) -> int:
    """Length of the longest end of the text that begins the marker."""
    for n in range(min(len(text), len(marker) - 1), 0, -1):
        if text.endswith(marker[:n]):
            return n
    return 0


def split(text: str, markers: Markers, *, opened: bool) -> tuple[str, str]:
    """(thoughts, answer) of a whole text."""
    splitter = Splitter(markers, opened=opened)
    pieces = splitter.feed(text) + splitter.finish()
    thoughts = "".join(text for thought, text in pieces if thought)
    return thoughts, "".join(text for thought, text in pieces if not thought)


def marker_bytes(source: str, tokenizer: Tokenizer) -> dict[int, bytes]:
    """Of the control tokens that make up a template's markers: an answer spells them out, others not."""
    ids = (id for text in markers_of(source) or () for id in tokenizer.split_special(text))
    return {id: tokenizer.token_bytes(id, special=True) for id in ids if isinstance(id, int)}


def splitter_for(
    template: ChatTemplate, messages: Iterable[Mapping[str, Any]], variables: Mapping[str, Any]
) -> Splitter | None:
    """For the answer to a conversation; None if its template knows of no thoughts. Errors: as `render`."""
    markers = markers_of(template.source)
    if markers is None:
        return None
    prompt = template.render(messages, **variables).rstrip()
    return Splitter(markers, opened=prompt.endswith(markers.opens.rstrip()))
