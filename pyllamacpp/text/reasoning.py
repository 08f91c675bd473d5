"""Reasoning apart from the answer: one state machine for streams and whole answers.

What encloses the thoughts is learned from the chat template (`ReasoningFormat.of`): it is asked to write an
assistant's turn with thoughts, and shows its markers. The rules of the split:

* Thoughts are opened at the beginning of an answer, after nothing but blanks, or by the prompt itself, where
  it ends with the opening marker. Anywhere else an opening marker is text, in thoughts as in the answer.
* The first closing marker ends them, except one in quotes: with the same `"`, `'` or backquote on both sides
  it is what the model thinks about, and stays in the thoughts.
* A closing marker without open thoughts is text.
* Blanks around the thoughts, and before the answer that follows them, belong to neither.
* Where the format puts the answer between markers too, they and what surrounds them are no part of it.
* An answer cut short in its thoughts is all thoughts; half a marker at the end is text.

Without a format, or in the raw text, nothing is touched.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from ..errors import ChatTemplateError
from .limits import TemplateLimitError

if TYPE_CHECKING:
    from .chat import ChatTemplate
    from .tokenizer import Tokenizer

# The thoughts of a message: in OpenAI's shape as servers extend it, and what others and templates call them.
FIELDS = ("reasoning_content", "thinking", "reasoning")
_ASKED, _THOUGHT, _ANSWERED = "QuestionProbe", "ThoughtsProbe", "AnswerProbe"
_QUOTES = "\"'`"
_TAG = re.compile(r"<[^<>\n]{1,40}>|\[[^\[\]\n]{1,40}\]")
_CLOSING_TAG = re.compile(r"</([\w:-]*think\w*)>")
_OTHER_PAIRS = (
    ("[THINK]", "[/THINK]"),
    ("<|channel>thought", "<channel|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)
# Around the answer itself, by a text that only templates of such a format hold.
_ANSWERS = {
    "<response></response>": ("<response>", "</response>"),
    "<|START_RESPONSE|>": ("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    "[BEGIN FINAL RESPONSE]": ("", "[END FINAL RESPONSE]"),
}
_FINAL, _PREAMBLE = "<|channel|>final<|message|>", "<|channel|>commentary<|message|>"


class Delta(NamedTuple):
    """What a push added to each; thoughts come before the answer."""

    reasoning: str
    content: str


@dataclass(frozen=True, slots=True)
class ReasoningFormat:
    """How a template marks thoughts. Markers are without the blanks around them.

    open, close: around the thoughts. headers: what may stand before the answer and is no part of it.
    turn: what begins an assistant's turn, and may be repeated between thoughts and answer.
    answer_close: what may end an answer that comes after a header or thoughts; more of them may follow it.
    """

    open: str
    close: str
    headers: tuple[str, ...] = ()
    turn: str = ""
    answer_close: str = ""

    @classmethod
    def of(cls, template: ChatTemplate) -> ReasoningFormat | None:
        """The template's format; None where it knows no thoughts. Errors: ChatTemplateError: no template."""
        template.check()
        source = template.source
        try:
            found = _probed(template)
        except TemplateLimitError:  # its own error when it is used
            found = None
        found = found or _named(source)
        for sign, (header, close) in _ANSWERS.items():
            if found is not None and sign in source:
                return replace(found, headers=(*found.headers, *filter(None, [header])), answer_close=close)
        return found

    def opened_by(self, prompt: str) -> bool:
        """Whether the answer to this prompt begins inside the thoughts."""
        return prompt.rstrip().endswith(self.open)

    def marker_bytes(self, tokenizer: Tokenizer) -> dict[int, bytes]:
        """The control tokens that markers are made of, with their texts: an answer has to spell them."""
        texts = (self.open, self.close, *self.headers, self.answer_close, self.turn)
        ids = (id for text in texts for id in tokenizer.split_special(text))
        return {id: tokenizer.token_bytes(id, special=True) for id in ids if isinstance(id, int)}


def _named(source: str) -> ReasoningFormat | None:
    """The format of a template that does not write thoughts back into a conversation, but looks for them in
    answers, or names their markers in the prompt."""
    if "[BEGIN FINAL RESPONSE]" in source:  # its <thinking> is of turns that call tools
        return ReasoningFormat("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]")
    if (tag := _CLOSING_TAG.search(source)) is not None:
        return ReasoningFormat(f"<{tag[1]}>", tag[0])
    pairs = (ReasoningFormat(*pair) for pair in _OTHER_PAIRS if all(one in source for one in pair))
    return next(pairs, None)


def _probed(template: ChatTemplate) -> ReasoningFormat | None:
    """The format, seen from an assistant's turn with thoughts. Errors: TemplateLimitError."""
    asked = {"role": "user", "content": _ASKED}
    answered = {"role": "assistant", "content": _ANSWERED, "reasoning_content": _THOUGHT}
    try:
        text = template.render([asked, answered], add_generation_prompt=False)
        if not 0 <= text.find(_ASKED) < text.find(_THOUGHT) < text.find(_ANSWERED):
            return None
        prompt = template.render([asked])
        plain = template.render([asked], add_generation_prompt=False)
    except TemplateLimitError:
        raise
    except ChatTemplateError:
        return None
    before, rest = text.split(_ASKED, 1)[1].split(_THOUGHT, 1)
    between = rest.split(_ANSWERED, 1)[0].strip()
    turn = prompt[len(plain) :] if prompt.startswith(plain) else ""
    opening = _opening(before, turn)
    if not opening or not between:
        return None
    tag = _TAG.match(between)
    if tag is None or tag.end() == len(between):
        return ReasoningFormat(opening, between)
    # The thoughts are a message of their own, and another one is begun for the answer.
    header, turn = between[tag.end() :].strip(), turn.strip()
    headers = [header]
    if _FINAL in header:  # what is said between calls is for the user too
        headers.append(header.replace(_FINAL, _PREAMBLE))
    if turn:
        headers += [header.removeprefix(turn).strip() for header in headers]
    return ReasoningFormat(opening, tag[0], tuple(headers), turn, answer_close=tag[0])


def _opening(before: str, turn: str) -> str:
    """The opening marker.

    before: from the question to the thoughts. turn: what the generation prompt adds, which may end with the
    marker or stand before it.
    """
    if turn and turn in before:
        own = before.rpartition(turn)[2].strip()
        if own:
            return own
    elif before and turn.startswith(before):
        return turn[len(before) :].strip()
    tags = list(_TAG.finditer(before.rstrip()))
    return tags[-1][0] if tags and tags[-1].end() == len(before.rstrip()) else ""


State = Callable[[bool], Delta]  # given whether the text has ended: what is settled, and maybe another state


class ReasoningSplitter:
    """Takes an answer's text as it comes. The sum of the deltas depends on the text alone, not on its cuts.

    format: None leaves all of it to the answer. opened: whether the prompt has opened the thoughts.
    """

    def __init__(self, format: ReasoningFormat | None, *, opened: bool = False) -> None:
        self._format = format
        self._held = ""
        self._state: State = self._content if format is None else self._thoughts if opened else self._start
        self._untouched = not opened  # nothing was cut off yet: blanks before the answer are its own
        self._before = ""  # the last character of the thoughts, of those given out
        self._any_thoughts = False
        self._any_answer = False
        self._joint = ""  # between an answer that was closed and one after it
        self._moves: dict[str, State] = {}
        if format is not None:
            opening = dict.fromkeys((format.open, format.turn + format.open), self._thoughts)
            self._moves = {**dict.fromkeys(format.headers, self._start), **opening}

    @property
    def reasoning(self) -> bool:
        """Whether what comes next belongs to open thoughts."""
        return self._state == self._thoughts

    def push(self, text: str) -> Delta:
        """What this much more text settles."""
        self._held += text
        return self._run(last=False)

    def flush(self) -> Delta:
        """The rest, when the text has ended."""
        return self._run(last=True)

    def _run(self, last: bool) -> Delta:
        reasoning, content = "", ""
        state = None
        while state != self._state:
            state = self._state
            delta = state(last)
            reasoning += delta.reasoning
            content += delta.content
        return Delta(reasoning, content)

    def _start(self, last: bool) -> Delta:
        """Before thoughts or answer."""
        text = self._held.lstrip()
        matches = [marker for marker in self._moves if text.startswith(marker)]
        longer = [m for m in self._moves if len(m) > len(text) and m.startswith(text)]
        if longer and not last:
            return Delta("", "")
        if matches:
            marker = max(matches, key=len)
            self._held, self._untouched = text[len(marker) :], False
            self._state = self._moves[marker]
            return self._start(last) if self._state == self._start else Delta("", "")
        if not self._untouched:
            self._held = text
        self._state = self._content
        return Delta("", "")

    def _thoughts(self, last: bool) -> Delta:
        assert self._format is not None
        close, held = self._format.close, self._held
        at = held.find(close)
        while at >= 0:
            end = at + len(close)
            quote = held[at - 1] if at else self._before
            if not quote or quote not in _QUOTES or (end == len(held) and last):
                break
            if end == len(held):  # the character behind it decides
                return self._think(at)
            if held[end] != quote:
                break
            at = held.find(close, end)
        if at >= 0:
            delta = self._think(at)
            self._held = self._held.lstrip()[len(close) :]
            self._state, self._untouched, self._before = self._start, False, ""
            return delta
        return self._think(len(held) if last else len(held) - _tail(held, close), rest=last)

    def _think(self, end: int, rest: bool = False) -> Delta:
        """Give out the thoughts up to `end` of what is held, without the blanks around all of them."""
        text = self._held[:end]
        if not self._before:
            text = text.lstrip()
        settled = text.rstrip()
        self._held = ("" if rest else text[len(settled) :]) + self._held[end:]
        if settled:
            if self._any_thoughts and not self._before:  # opened once more
                settled = "\n\n" + settled
            self._before, self._any_thoughts = settled[-1], True
        return Delta(settled, "")

    def _content(self, last: bool) -> Delta:
        close = "" if self._format is None or self._untouched else self._format.answer_close
        held = self._held
        at = held.find(close) if close else -1
        if at >= 0:
            said, self._held = held[:at].rstrip(), held[at + len(close) :]
            self._state = self._start
        elif close and not last:
            said = held[: len(held) - _tail(held, close)].rstrip()
            self._held = held[len(said) :]
        else:
            said, self._held = held, ""
        if said:
            said, self._joint = self._joint + said, ""
            self._any_answer = True
        if at >= 0 and self._any_answer:
            self._joint = "\n\n"
        return Delta("", said)


def _tail(text: str, marker: str) -> int:
    """Length of the longest end of `text` that begins `marker`."""
    return next((n for n in range(min(len(text), len(marker) - 1), 0, -1) if text.endswith(marker[:n])), 0)


def split(format: ReasoningFormat | None, text: str, *, opened: bool = False) -> Delta:
    """The thoughts and the answer in a whole text."""
    splitter = ReasoningSplitter(format, opened=opened)
    first, rest = splitter.push(text), splitter.flush()
    return Delta(first.reasoning + rest.reasoning, first.content + rest.content)
