"""How a byte-pair vocabulary cuts text before merging: `tokenizer.ggml.pre` -> regexes and flags.

The table is pretokenizers.json (regexes as \\u escapes, so that no editor normalises them). A few groups of
the table are the workarounds of a C++ regex library; for those the tokenizers' own definition is given here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ..errors import ParameterError, UnsupportedModelError

_CONTRACTION = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_SPACE = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def _cased(upper: str, lower: str, suffix: str, rest: str) -> str:
    """Words cut where lower case turns into upper case (o200k and its relatives)."""
    start = r"[^\r\n\p{L}\p{N}]?"
    return f"{start}{upper}*{lower}+{suffix}|{start}{upper}+{lower}*{suffix}|{rest}|{_SPACE}"


_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_O200K = _cased(_UPPER, _LOWER, f"{_CONTRACTION}?", r"\p{N}{1,3}|" + _SYMBOLS)
_NO_HAN = r"&&[^\p{Han}]]"

_OWN: dict[str, list[str]] = {
    # The table's lookaheads know only a-z and A-Z and take marks for punctuation: wrong for Hindi or Greek.
    "GPT4O": [_O200K],
    "MINIMAX_M2": [_O200K],
    "GRANITE_EMB_MULTI": [_O200K],
    "TEKKEN": [_cased(_UPPER, _LOWER, "", r"\p{N}|" + _SYMBOLS)],
    # The table has a trigger for hand-written code.
    "KIMI_K2": [
        r"\p{Han}+|"
        + _cased(
            _UPPER[:-1] + _NO_HAN,
            _LOWER[:-1] + _NO_HAN,
            f"{_CONTRACTION}?",
            r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*",
        )
    ],
}

# For some entries of a group's list, the same cuts in linear time: the table's look ahead from every third
# digit to the end of the digits, or from every blank to the end of the blanks.
_LINEAR: dict[str, dict[int, list[str]]] = {
    # Hand-written code in the table: digits in threes counted from the right: the run, its head, the threes.
    "AFMOE": {0: [r"\p{N}+", r"\A\p{N}{1,2}(?=(?:\p{N}{3})+\z)", r"\p{N}{1,3}"]},
    # The same of runs that end a word; the second entry cuts the threes.
    "TINY_AYA": {0: [r"(?<!\d)\d++\b", r"\A\d{1,2}(?=(?:\d{3})+\z)"]},
    # The same among other numerals, which stay with the three before them: a cut behind the head, then all
    # but the last three.
    "SUPERBPE": {1: [r"(?<!\d)\d{0,2}\K(?=(?:\d{3})+(?!\d))", r"\d{3}(?=\d{3})"]},
}
# JAIS2 cuts blanks in pieces: behind one of them there is no line break among those that follow.
_JAIS2 = (r"|\s*[\r\n]+|", r"|(?<![^\S\r\n])\s*[\r\n]+|")


@dataclass(frozen=True)
class PreTokenizer:
    """Oniguruma regexes in order, each isolating its matches in the pieces left by the one before."""

    name: str
    regexes: list[str]
    ignore_merges: bool = False  # a piece that is a token is taken whole
    add_bos: bool = False
    add_sep: bool = False
    escape_whitespaces: bool = False  # spaces as U+2581 and raw UTF-8 instead of the byte alphabet
    lowercase: bool = True  # read by the "whitespace" model kind only

    @property
    def byte_level(self) -> bool:
        """Whether pieces are spelled in the byte alphabet of GPT-2."""
        return not self.escape_whitespaces and self.name != "whitespace"


def _table() -> dict[str, dict[str, dict[str, object]]]:
    text = Path(__file__).with_name("pretokenizers.json").read_text(encoding="ascii")
    table: dict[str, dict[str, dict[str, object]]] = json.loads(text)
    return table


def names() -> list[str]:
    """Every known `tokenizer.ggml.pre`."""
    return sorted(_table()["names"])


def lookup(name: str, *, override: bool = False) -> PreTokenizer:
    """The pre-tokenizer `name`. Errors: UnsupportedModelError; ParameterError for a caller's `override`."""
    table = _table()
    entry = table["names"].get(name)
    if entry is None:
        if override:
            raise ParameterError(f"unknown pre-tokenizer {name!r}", f"Known: {', '.join(names())}.")
        raise UnsupportedModelError(
            f"the file's pre-tokenizer (tokenizer.ggml.pre) {name!r} is not known",
            "If it equals a known one, name that with `pre=` or `--pre` (llama-bpe, qwen2, gpt-2 ...).",
        )
    group = str(entry["group"])
    regexes = _OWN.get(group) or [str(r) for r in table["groups"][group]]
    linear = _LINEAR.get(group, {})
    regexes = [other for i, regex in enumerate(regexes) for other in linear.get(i, [regex])]
    if group == "JAIS2":
        regexes = [regex.replace(*_JAIS2) for regex in regexes]
    flags = {key: bool(value) for key, value in entry.items() if key not in ("group", "clean_spaces")}
    return PreTokenizer(name, regexes, **flags)
