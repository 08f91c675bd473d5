"""Every parameter once: its type, default, range and help.

`SamplingParams` and `LoadParams` are what `Llama`'s arguments, the command line's options and the server's
fields are made from: names, defaults and help texts are read from here (`spec`, `specs`), and values are
checked here, when the object is made. Defaults are llama-cpp-python's where it has one.
"""

from __future__ import annotations

import contextlib
import math
import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from .errors import ParameterError

SEED_MAX = 2**64 - 1
INT_MAX = 2**31 - 1  # of the core's integers
DEFAULT_KV_TYPE = "f16"  # the core's too


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


def _strings(name: str, value: Any) -> tuple[str, ...]:
    strings = () if value is None else (value,) if isinstance(value, str) else value
    if not isinstance(strings, Iterable) or isinstance(strings, (bytes, Mapping)):
        raise ParameterError(f"{name} must be a string or a list of strings, not {value!r}")
    result = tuple(strings)
    for s in result:
        if not isinstance(s, str) or not s:
            raise ParameterError(
                f"{name} must hold non-empty strings, not {s!r}", "An empty string would be found everywhere."
            )
    return result


def _sampler_names(value: Any) -> tuple[str, ...] | None:
    """Names in order, from a list or from text with commas between them."""
    if value is None:
        return None
    names = [name.strip() for text in _strings("samplers", value) for name in text.split(",")]
    for i, name in enumerate(names):
        if name not in SAMPLERS:
            raise ParameterError(
                f"samplers names {name!r}, which is no sampler", f"There are: {', '.join(SAMPLERS)}."
            )
        if name in names[:i]:
            raise ParameterError(f"samplers names {name} twice", "Each can be taken once.")
    return tuple(names)


def _bias_table(value: Any) -> dict[int, float]:
    """Token id -> bias, from a mapping (ids may be decimal strings, as JSON has them) or a list of pairs.

    OpenAI's ends of the range mean what its documentation says: -100 or less bans (-inf), 100 or more allows
    these tokens alone (inf).
    """
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
            infinite = isinstance(bias, float) and math.isinf(bias)
            number = float(bias) if infinite else _number(bias)
        except (TypeError, ValueError, OverflowError):
            token, number = -1, 0.0
        if not 0 <= token < 2**31:
            raise ParameterError(f"logit_bias must map token ids to numbers, not {key!r} to {bias!r}")
        if token in table:
            raise ParameterError(f"logit_bias names token {token} twice")
        table[token] = -math.inf if number <= -100 else math.inf if number >= 100 else number
    return table


_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def _metadata(value: Any) -> Mapping[str, Any]:
    """Scalars by metadata key."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ParameterError(f"kv_overrides must map metadata keys to values, not {value!r}")
    for key, one in value.items():
        wide = isinstance(one, int) and not -(2**63) <= one < 2**63
        halved = any(isinstance(text, str) and _LONE_SURROGATE.search(text) for text in (key, one))
        known = isinstance(key, str) and key and isinstance(one, (bool, int, float, str))
        if not known or wide or halved:
            raise ParameterError(
                f"kv_overrides must map metadata keys to bool, int, float or str, not {key!r} to {one!r}",
                'Write {"tokenizer.ggml.add_bos_token": False}, for example.',
            )
    return dict(value)


def kv_type(name: str, value: Any) -> str:
    """The name of a KV type, from that or from GGML's number; None: the default. name: the parameter's."""
    from . import _core  # here, because options and completions are made without it

    if value is None:
        return DEFAULT_KV_TYPE
    known = _core.kv_types()
    if isinstance(value, str) and value in known:
        return value
    with contextlib.suppress(TypeError):
        number = _integer(value)
        for kv, id in known.items():
            if id == number:
                return kv
    names = ", ".join(kv if id is None else f"{kv} ({id})" for kv, id in known.items())
    raise ParameterError(f"{name}={value!r} is no supported type of the KV cache", f"There are: {names}.")


# The samplers in their default order, each with the parameters that turn it on.
SAMPLERS: dict[str, tuple[str, ...]] = {
    "penalties": ("repeat_penalty", "frequency_penalty", "presence_penalty"),
    "dry": ("dry_multiplier",),
    "top_n_sigma": ("top_n_sigma",),
    "top_k": ("top_k",),
    "typical_p": ("typical_p",),
    "top_p": ("top_p",),
    "min_p": ("min_p",),
    "xtc": ("xtc_probability",),
    "temperature": ("temperature", "dynatemp_range"),
}
_WITH_MIROSTAT = ("penalties", "dry", "temperature")  # it takes the place of the others


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the next token is chosen, and when to stop. Immutable; every value is checked on construction.

    The chain: `logit_bias` and `min_tokens`; the samplers, in the order of `SAMPLERS` or of `samplers`;
    mirostat instead of all that cut; the draw. The penalties look at the last `penalty_last_n` tokens of
    prompt and answer: `repeat_penalty` counts both, `frequency_penalty` and `presence_penalty` the answer
    alone. With a temperature of 0 or less only bias, penalties and DRY count.

    Raises:
        ParameterError: a value of the wrong type or out of range, named with the value and the range; one
            that would have no effect, because `samplers` or mirostat leave its sampler out.
    """

    max_tokens: int | None = _param(
        16, "Most tokens to generate; -1 or 0: until the model ends or the context is full.", int,
        low=-1, optional=True, off=(-1, 0), flags=("--max-tokens", "-n"),
    )  # fmt: skip
    min_tokens: int = _param(
        0, "No token that ends the answer is drawn before this many; stop strings still count.", int, low=0
    )
    temperature: float = _param(
        0.8, "Below 1 sharpens, above 1 flattens the choice; 0 or less takes the likeliest token.", float,
        flags=("--temp", "--temperature"),
    )  # fmt: skip
    top_k: int = _param(
        40, "Choose among the k likeliest tokens only; 0 or -1: off.", int, low=-1, high=INT_MAX
    )
    top_p: float = _param(
        0.95, "Choose among the fewest tokens whose probabilities reach p; 1: off.", float, low=0, high=1
    )
    min_p: float = _param(
        0.05, "Drop tokens less likely than this share of the likeliest one; 0: off.", float, low=0, high=1
    )
    typical_p: float = _param(
        1.0, "Choose among tokens of typical surprise whose probabilities reach p; 1: off.", float,
        low=0, high=1,
    )  # fmt: skip
    top_n_sigma: float = _param(
        -1.0, "Drop logits more than n standard deviations below the best; 0 or less: off.", float
    )
    xtc_probability: float = _param(
        0.0, "How often all likely tokens but the least likely one are excluded; 0: off.", float,
        low=0, high=1,
    )  # fmt: skip
    xtc_threshold: float = _param(
        0.1, "From which probability on XTC calls a token likely; above 0.5: never.", float, low=0, high=1
    )
    dynatemp_range: float = _param(
        0.0, "Temperature moves this far up and down with the entropy; 0: off.", float, low=0
    )
    dynatemp_exponent: float = _param(1.0, "How the entropy is bent for dynatemp_range.", float, low=0)
    repeat_penalty: float = _param(1.0, "Divides the odds of tokens seen before; 1: off.", float, above=0)
    frequency_penalty: float = _param(
        0.0, "Subtracted from a token's logit for each time it was answered; 0: off.", float, low=-2, high=2
    )
    presence_penalty: float = _param(
        0.0, "Subtracted from a token's logit if it was answered at all; 0: off.", float, low=-2, high=2
    )
    penalty_last_n: int = _param(
        64,
        "How many of the last tokens the penalties look at; 0: none, -1: all.",
        int,
        low=-1,
        high=INT_MAX,
    )
    dry_multiplier: float = _param(0.0, "Strength of DRY, against repeated sequences; 0: off.", float, low=0)
    dry_base: float = _param(1.75, "DRY's penalty grows by this with each repeated token.", float, low=1)
    dry_allowed_length: int = _param(
        2, "How many tokens may be repeated without a DRY penalty.", int, low=1, high=INT_MAX
    )
    dry_penalty_last_n: int = _param(
        -1,
        "How many of the last tokens DRY looks at; 0: off, -1: all.",
        int,
        low=-1,
        high=INT_MAX,
    )
    dry_sequence_breakers: tuple[str, ...] = _param(
        ("\n", ":", '"', "*"), "Texts that no repetition reaches across.", tuple
    )
    mirostat_mode: int = _param(
        0, "Keep the surprise of tokens even instead of cutting: 1, 2 (its versions); 0: off.", int,
        low=0, high=2,
    )  # fmt: skip
    mirostat_tau: float = _param(5.0, "The surprise mirostat aims at, in bits.", float, low=0)
    mirostat_eta: float = _param(0.1, "How fast mirostat adapts.", float, low=0)
    samplers: tuple[str, ...] | None = _param(
        None, "The samplers to take, in this order, instead of all in the default one.", tuple, optional=True
    )
    seed: int | None = _param(
        None, "Same seed, same answer; -1: a random one.", int,
        low=-1, high=SEED_MAX, optional=True, off=(-1,), flags=("--seed", "-s"),
    )  # fmt: skip
    stop: tuple[str, ...] = _param((), "End before any of these strings.", tuple)
    logit_bias: Mapping[int, float] = _param(
        None, "Added to the logits of token ids; -100 or less bans, 100 or more allows no others.", dict
    )
    logprobs: int | None = _param(
        None, "Report log-probabilities: of the chosen token and of this many likeliest ones.", int,
        low=0, high=INT_MAX, optional=True,
    )  # fmt: skip

    def __post_init__(self) -> None:
        _check_all(self)
        for name in ("stop", "dry_sequence_breakers"):
            object.__setattr__(self, name, _strings(name, getattr(self, name)))
        object.__setattr__(self, "logit_bias", _bias_table(self.logit_bias))
        object.__setattr__(self, "samplers", _sampler_names(self.samplers))
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise ParameterError(
                f"min_tokens={self.min_tokens} is more than max_tokens={self.max_tokens}",
                "Raise max_tokens, or leave min_tokens out.",
            )
        self._check_effects()

    def _check_effects(self) -> None:
        """Refuse what would silently do nothing."""
        taken = tuple(SAMPLERS) if self.samplers is None else self.samplers
        if self.mirostat_mode:
            cuts = [name for name in SAMPLERS if name not in _WITH_MIROSTAT]
            why = f"with mirostat_mode={self.mirostat_mode}"
            hint = f"It takes the place of {', '.join(cuts)}: leave them at their defaults."
            for name in self.samplers or ():
                if name in cuts:
                    raise ParameterError(f"samplers: {name} has no effect {why}", hint)
            taken = tuple(name for name in taken if name in _WITH_MIROSTAT)
        for sampler, parameters in SAMPLERS.items():
            if sampler in taken:
                continue
            if not self.mirostat_mode or sampler in _WITH_MIROSTAT:
                why, hint = f"as samplers leaves {sampler} out", "Add it there, or leave the parameter out."
            for name in parameters:
                value, default = getattr(self, name), spec(SamplingParams, name).default
                if value not in (default, CHAT_DEFAULTS.get(name, default)):
                    raise ParameterError(f"{name}={value} has no effect {why}", hint)


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
        low=0, high=INT_MAX, optional=True, off=(0,), flags=("--ctx", "-c"),
    )  # fmt: skip
    n_threads: int | None = _param(
        None, "Threads; 0: the physical cores this process may use.", int,
        low=0, high=1024, optional=True, off=(0,), flags=("--threads", "-t"),
    )  # fmt: skip
    n_threads_batch: int | None = _param(
        None, "Threads for prompts: the same that answer.", int, low=0, optional=True, off=(0,)
    )
    n_batch: int = _param(512, "Prompt tokens evaluated at a time.", int, low=1)
    type_k: str = _param(
        DEFAULT_KV_TYPE, "What keys are kept as; an unknown type is answered with the list of all.", str,
        flags=("--cache-type-k", "-ctk"),
    )  # fmt: skip
    type_v: str = _param(
        DEFAULT_KV_TYPE, "What values are kept as, likewise.", str, flags=("--cache-type-v", "-ctv")
    )
    pre: str | None = _param(
        None, "Pre-tokenizer to use instead of the one the file names.", str, optional=True
    )
    chat_template: str | None = _param(
        None, "Chat template (Jinja source) to use instead of the one in the file.", str, optional=True
    )
    chat_format: str | None = _param(
        None, "Name of a well-known chat format to use instead of the file's template.", str, optional=True
    )
    pooling_type: int | None = _param(
        None, "One vector a text for embeddings: 1 mean, 2 first, 3 last token; 0: a vector a token.", int,
        low=-1, high=3, optional=True, off=(-1,),
    )  # fmt: skip
    rope_scaling_type: int | None = _param(
        None, "Stretching of positions: 0 none, 1 linear, 2 yarn, 3 longrope, instead of the file's.", int,
        low=-1, high=3, optional=True, off=(-1,),
    )  # fmt: skip
    rope_freq_base: float | None = _param(
        None, "Base of the rope frequencies instead of the file's.", float, low=0, optional=True, off=(0,)
    )
    rope_freq_scale: float | None = _param(
        None, "Factor of positions (0.5: twice the context) instead of the file's.", float,
        low=0, optional=True, off=(0,),
    )  # fmt: skip
    yarn_attn_factor: float | None = _param(
        None, "Yarn's factor of the magnitude; 1: the file's.", float, above=0, optional=True, off=(1,)
    )
    yarn_beta_fast: float | None = _param(
        None, "Turns above which yarn leaves a frequency alone; 32: the file's.", float,
        above=0, optional=True, off=(32,),
    )  # fmt: skip
    yarn_beta_slow: float | None = _param(
        None, "Turns below which yarn stretches a frequency in full; 1: the file's.", float,
        above=0, optional=True, off=(1,),
    )  # fmt: skip
    yarn_orig_ctx: int | None = _param(
        None, "The context yarn's model was first trained with; 0: the file's.", int,
        low=0, high=2**30, optional=True, off=(0,),
    )  # fmt: skip
    kv_overrides: Mapping[str, bool | int | float | str] = _param(
        None, "Metadata to take instead of the file's: key to value.", dict
    )

    def __post_init__(self) -> None:
        for name in ("type_k", "type_v"):
            object.__setattr__(self, name, kv_type(name, getattr(self, name)))
        _check_all(self)
        if self.n_threads_batch not in (None, self.n_threads):
            raise ParameterError(
                f"n_threads_batch={self.n_threads_batch} differs from n_threads={self.n_threads}: "
                "not supported yet",
                "The same threads compute prompts and answers.",
            )
        object.__setattr__(self, "kv_overrides", _metadata(self.kv_overrides))


def random_seed() -> int:
    """A fresh seed, short enough to be typed back."""
    return int.from_bytes(os.urandom(4), "little")
