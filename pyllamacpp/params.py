"""Every parameter once: its type, default, range and help.

`SamplingParams` and `LoadParams` are what `Llama`'s arguments, the command line's options and the server's
fields are made from: names, defaults and help texts are read from here (`spec`, `specs`), and values are
checked here, when the object is made. Defaults are llama-cpp-python's where it has one.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from .errors import ParameterError

SEED_MAX = 2**64 - 1


@dataclass(frozen=True, slots=True)
class ParamSpec:
    """What is known of one parameter. A bound of None is no bound; `above` is an excluded lower bound.

    `off` are the values that mean the same as None ("no limit", "chosen for you"); they are stored as None.
    """

    help: str
    kind: type
    low: int | None = None
    high: int | None = None
    above: int | None = None
    optional: bool = False
    off: tuple[int, ...] = ()
    flags: tuple[str, ...] = ()
    default: Any = None

    @property
    def range(self) -> str:
        """The allowed values in words: "a number in [0, 1]"."""
        words = {int: "an integer", float: "a finite number", str: "a string"}.get(self.kind, "a value")
        if self.low is not None and self.high is not None:
            words += f" in [{self.low}, {self.high}]"
        elif self.low is not None:
            words += f" >= {self.low}"
        elif self.above is not None:
            words += f" > {self.above}"
        return words + (" or None" if self.optional else "")


def _param(default: Any, help: str, kind: type, **rest: Any) -> Any:
    return field(default=default, metadata={"spec": ParamSpec(help, kind, default=default, **rest)})


def specs(params: type) -> dict[str, ParamSpec]:
    """Field name -> `ParamSpec` of a parameter class, in the order of the fields."""
    return {f.name: f.metadata["spec"] for f in fields(params)}


def spec(params: type, name: str) -> ParamSpec:
    return specs(params)[name]


def _integer(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError
    return operator.index(value)


def _number(value: Any) -> float:
    """A finite float from any real number (numpy's too); never from a bool or a string."""
    if isinstance(value, (bool, str, bytes)):
        raise TypeError
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return number


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


_CONVERT: dict[type, Callable[[Any], Any]] = {int: _integer, float: _number, str: _text}


def _checked(name: str, value: Any, rule: ParamSpec) -> Any:
    """`value` as the parameter's type, or a ParameterError naming parameter, value and range."""
    if value is None and rule.optional:
        return None
    try:
        result = _CONVERT[rule.kind](value)
        inside = rule.kind is str or (
            (rule.low is None or result >= rule.low)
            and (rule.high is None or result <= rule.high)
            and (rule.above is None or result > rule.above)
        )
    except (TypeError, ValueError, OverflowError):
        inside = False
    if not inside:
        raise ParameterError(f"{name} must be {rule.range}, not {value!r}", rule.help)
    return None if result in rule.off and rule.optional else result


def _check_all(params: Any) -> None:
    for name, rule in specs(type(params)).items():
        if rule.kind in _CONVERT:
            object.__setattr__(params, name, _checked(name, getattr(params, name), rule))


def _stop_strings(value: Any) -> tuple[str, ...]:
    strings = () if value is None else (value,) if isinstance(value, str) else value
    if not isinstance(strings, Iterable) or isinstance(strings, (bytes, Mapping)):
        raise ParameterError(f"stop must be a string or a list of strings, not {value!r}")
    result = tuple(strings)
    for s in result:
        if not isinstance(s, str) or not s:
            raise ParameterError(
                f"stop must hold non-empty strings, not {s!r}", "An empty string would end every answer."
            )
    return result


def _bias_table(value: Any) -> dict[int, float]:
    """Token id -> bias, from a mapping (ids may be decimal strings, as JSON has them) or a list of pairs."""
    try:
        pairs = [] if value is None else list(value.items() if isinstance(value, Mapping) else value)
        pairs = [(key, bias) for key, bias in pairs]
    except (TypeError, ValueError):
        raise ParameterError(
            f"logit_bias must be a mapping or a list of [token id, bias], not {value!r}"
        ) from None
    table: dict[int, float] = {}
    for key, bias in pairs:
        decimal = isinstance(key, str) and key.isascii() and key.isdigit()
        try:
            token = int(key) if decimal else _integer(key)
            number = -math.inf if bias == -math.inf else _number(bias)
        except (TypeError, ValueError, OverflowError):
            token, number = -1, 0.0
        if not 0 <= token < 2**31:
            raise ParameterError(
                f"logit_bias must map token ids to finite numbers or -inf, not {key!r} to {bias!r}"
            )
        if token in table:
            raise ParameterError(f"logit_bias names token {token} twice")
        table[token] = number
    return table


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the next token is chosen, and when to stop. Immutable; every value is checked on construction.

    Raises:
        ParameterError: a value of the wrong type or out of range, named with the value and the range.
    """

    max_tokens: int | None = _param(
        16, "Most tokens to generate; -1 or 0: until the model ends or the context is full.", int,
        low=-1, optional=True, off=(-1, 0), flags=("--max-tokens", "-n"),
    )  # fmt: skip
    temperature: float = _param(
        0.8, "Below 1 sharpens, above 1 flattens the choice; 0 or less takes the likeliest token.", float,
        flags=("--temp", "--temperature"),
    )  # fmt: skip
    top_k: int = _param(40, "Choose among the k likeliest tokens only; 0 or -1: off.", int, low=-1)
    top_p: float = _param(
        0.95, "Choose among the fewest tokens whose probabilities reach p; 1: off.", float, low=0, high=1
    )
    min_p: float = _param(
        0.05, "Drop tokens less likely than this share of the likeliest one; 0: off.", float, low=0, high=1
    )
    repeat_penalty: float = _param(1.0, "Divides the odds of tokens seen before; 1: off.", float, above=0)
    frequency_penalty: float = _param(
        0.0, "Subtracted from a token's logit for each time it occurred; 0: off.", float, low=-2, high=2
    )
    presence_penalty: float = _param(
        0.0, "Subtracted from a token's logit if it occurred at all; 0: off.", float, low=-2, high=2
    )
    penalty_last_n: int = _param(
        64, "How many of the last tokens the penalties look at; 0: none, -1: all.", int, low=-1
    )
    seed: int | None = _param(
        None, "Same seed, same answer; -1: a random one.", int,
        low=-1, high=SEED_MAX, optional=True, off=(-1,), flags=("--seed", "-s"),
    )  # fmt: skip
    stop: tuple[str, ...] = _param((), "End before any of these strings.", tuple)
    logit_bias: Mapping[int, float] = _param(
        None, "Added to the logits of token ids; -inf bans a token.", dict
    )
    logprobs: int | None = _param(
        None, "Report log-probabilities: of the chosen token and of this many likeliest ones.", int,
        low=0, optional=True,
    )  # fmt: skip

    def __post_init__(self) -> None:
        _check_all(self)
        object.__setattr__(self, "stop", _stop_strings(self.stop))
        object.__setattr__(self, "logit_bias", _bias_table(self.logit_bias))


# llama-cpp-python's create_chat_completion differs from its create_completion in these two.
CHAT_DEFAULTS: dict[str, Any] = {"temperature": 0.2, "max_tokens": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadParams:
    """How a model is loaded. Immutable; every value is checked on construction.

    Raises:
        ParameterError: a value of the wrong type or out of range, named with the value and the range.
    """

    n_ctx: int | None = _param(
        None, "Context size in tokens; 0: as trained, or what fits in memory.", int,
        low=0, high=2**31 - 1, optional=True, off=(0,), flags=("--ctx", "-c"),
    )  # fmt: skip
    n_threads: int | None = _param(
        None, "Threads; 0: the physical cores this process may use.", int,
        low=0, high=1024, optional=True, off=(0,), flags=("--threads", "-t"),
    )  # fmt: skip
    n_batch: int = _param(512, "Prompt tokens evaluated at a time.", int, low=1)
    pre: str | None = _param(
        None, "Pre-tokenizer to use instead of the one the file names.", str, optional=True
    )
    chat_template: str | None = _param(
        None, "Chat template (Jinja source) to use instead of the one in the file.", str, optional=True
    )

    def __post_init__(self) -> None:
        _check_all(self)


def random_seed() -> int:
    """A fresh seed, short enough to be typed back."""
    return int.from_bytes(os.urandom(4), "little")
