"""What a template may use: CPU time, the size of one value, the sum of all.

What grows out of proportion inside one call (`replace`, `join`, `center`, ...) is estimated before the call:
nothing could stop it later.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..errors import ChatTemplateError

_SECONDS = 0.5  # of CPU
_CHARACTERS_A_SECOND = 10_000_000  # of input: a long conversation may take longer,
_MESSAGES_A_SECOND = 5_000  # and one of many turns
_LARGEST = 4 << 20  # characters or items in one value, and this many times the input:
_LARGEST_SHARE = 4
_SUM = 64 << 20  # of all values ever made
_SUM_SHARE = 32
ITEMS = 1 << 18  # in one list
WIDEST = 10_000  # columns, digits, repetitions asked for by number

_WIDTH = re.compile(r"\d{5,}|\*")  # in a format


class TemplateLimitError(ChatTemplateError):
    """The chat template was stopped; it would be again."""


class Limits:
    """One rendering's. Every method raises TemplateLimitError once a limit is passed."""

    def __init__(self, n_input: int, n_messages: int) -> None:
        """n_input: characters and items the template is given; n_messages: turns of the conversation."""
        longer = n_input / _CHARACTERS_A_SECOND + n_messages / _MESSAGES_A_SECOND
        self._until = time.thread_time() + _SECONDS + longer
        self.largest = _LARGEST + _LARGEST_SHARE * n_input
        self._left = _SUM + _SUM_SHARE * n_input

    def tick(self) -> None:
        if time.thread_time() > self._until:
            raise TemplateLimitError(
                "the chat template ran too long and was stopped", "It may contain an endless loop."
            )

    def charge(self, value: Any) -> Any:
        """`value`, counted if it is text or a list."""
        if isinstance(value, (str, list)):
            self._take(len(value))
        return value

    def check(self, value: Any, most: int | None = None) -> None:
        """That all of `value` may be visited, as to print or compare it; shared parts count each time."""
        if isinstance(value, (str, int, float)) or value is None:
            return
        self.tick()
        most = self.largest if most is None else most
        if weigh(value, most) > most:
            self._too_large()

    def check_size(self, n: int) -> None:
        if n > self.largest:
            self._too_large()

    def check_items(self, n: int) -> None:
        if n > ITEMS:
            raise TemplateLimitError(f"the chat template makes a list of more than {ITEMS} items")

    def check_width(self, *numbers: Any) -> None:
        """Of what is given as a width, a number of digits, a count."""
        if any(isinstance(n, (int, float)) and abs(n) > WIDEST for n in numbers):
            raise TemplateLimitError(f"the chat template asks for a width or count of more than {WIDEST}")

    def check_format(self, form: str, values: Sequence[Any]) -> None:
        """Of a format with its values: no widths beyond bounds, and no value printed a million times."""
        if _WIDTH.search(form):
            raise TemplateLimitError("the chat template formats with a width of five digits or of `*`")
        if "{" in form:
            self.check_width(*values)  # any may be a width: {:{}}
        self.check_size((form.count("{") + form.count("%") + 1) * (weigh(values, self.largest) + len(form)))

    def gather(self, pieces: Iterable[str]) -> str:
        """The pieces in one, as long as they come."""
        kept: list[str] = []
        n = 0
        for piece in pieces:
            n += len(piece) + 1
            self.check_size(n)
            kept.append(piece)
        self._take(n)
        return "".join(kept)

    def _take(self, n: int) -> None:
        self.check_size(n)
        self._left -= n
        self.tick()
        if self._left < 0:
            raise TemplateLimitError("the chat template makes too much text and was stopped")

    def _too_large(self) -> None:
        raise TemplateLimitError(f"the chat template makes a value larger than {self.largest} characters")


def weigh(value: Any, most: int | None = None) -> int:
    """Characters and items that a visit of all of `value` meets; if more than `most`, some such number."""
    total, waiting = 0, [value]
    while waiting and (most is None or total <= most):
        one = waiting.pop()
        total += 1
        if isinstance(one, str):
            total += len(one)
        elif isinstance(one, Mapping):
            waiting.extend(one)
            waiting.extend(one.values())
        elif isinstance(one, (list, tuple)):
            waiting.extend(one)
    return total


# Estimates. Each is called with (limits, first, args, kwargs) before the method or filter of that name.


def _replace(limits: Limits, text: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    old, new = [str(part) for part in [*args, *kwargs.values()]][:2]
    text = str(text)
    limits.check_size(len(text) + text.count(old) * len(new))


def _join_filter(limits: Limits, items: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    separator = str(args[0]) if args else str(kwargs.get("d", ""))
    n = len(items) if hasattr(items, "__len__") else WIDEST
    limits.check_size(weigh(items, limits.largest) + n * len(separator))


def _join_method(limits: Limits, separator: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    _join_filter(limits, args[0], (separator,), {})


def _width(limits: Limits, text: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    limits.check_width(*args, *kwargs.values())


def _lines(limits: Limits, text: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    limits.check_width(*args, *kwargs.values())
    sizes = [
        len(a) if isinstance(a, str) else a for a in (*args, *kwargs.values()) if isinstance(a, (str, int))
    ]
    text = str(text)
    limits.check_size(len(text) + (text.count("\n") + text.count("\t") + 1) * max(sizes, default=8))


def _formatted(limits: Limits, form: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    limits.check_format(str(form), [*args, *kwargs.values()])


def _repeated(limits: Limits, value: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Of a filter that may put each of its texts beside each character or item."""
    limits.check_width(*args, *kwargs.values())
    longest = max((len(a) for a in (*args, *kwargs.values()) if isinstance(a, str)), default=0)
    limits.check_size(weigh(value, limits.largest) * (longest + 1))


def _numbers(limits: Limits, items: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    start = args[1] if len(args) > 1 else kwargs.get("start", 0)
    if not isinstance(start, (int, float)):
        raise ChatTemplateError("the chat template sums what are no numbers")


Estimate = Callable[[Limits, Any, Sequence[Any], Mapping[str, Any]], None]
METHODS: Mapping[str, Estimate] = {
    "replace": _replace, "join": _join_method, "center": _width, "ljust": _width, "rjust": _width,
    "zfill": _width, "expandtabs": _lines, "format": _formatted, "format_map": _formatted,
}  # fmt: skip
FILTERS: Mapping[str, Estimate] = {
    "replace": _replace, "join": _join_filter, "indent": _lines, "format": _formatted, "sum": _numbers,
    "tojson": _repeated, "wordwrap": _repeated, "xmlattr": _repeated, "urlize": _repeated,
}  # fmt: skip


def check_operator(limits: Limits, operator: str, left: Any, right: Any) -> None:
    """Before `left operator right`."""
    limits.tick()
    if operator == "*":
        for value, n in ((left, right), (right, left)):
            if isinstance(value, (str, list, tuple)) and isinstance(n, int):
                limits.check_size(len(value) * n)
            elif isinstance(value, int) and isinstance(n, int):
                limits.check_width(value.bit_length() + n.bit_length())
    elif operator == "+" and isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        limits.check_items(len(left) + len(right))
    elif operator == "**" and isinstance(left, int) and isinstance(right, int):
        limits.check_width(left.bit_length() * abs(right))
    elif operator == "%" and isinstance(left, str):
        limits.check_format(left, right if isinstance(right, tuple) else [right])
