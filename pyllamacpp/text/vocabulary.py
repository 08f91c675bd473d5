"""The vocabulary of a GGUF file, read from its metadata and checked: pieces, types, special ids, ends.

Where a file leaves a special token untyped or unnamed, well-known token texts decide, by the rules llama.cpp
uses, so that files in circulation stop where their authors saw them stop. One rule is our own: a normal token
that merges can build out of text ("</s>" in Qwen's vocabularies) is text, and stays so.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..errors import ModelFileError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

_PREFIX = "tokenizer.ggml."
_NO_TOKEN = 0xFFFFFFFF  # -1 written as uint32: "this model has none"
_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")

# Texts of the end-of-turn token, likeliest first.
_EOT = (
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<EOT>",
    "_<EOT>", "\u2581<EOT>", "[EOT]", "<\uff5cend\u2581of\u2581sentence\uff5c>", "<end_of_utterance>",
)  # fmt: skip
# Fill-in-the-middle tokens: control tokens whatever their type in the file.
_FILL = {
    "fim_pre": ("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<\uff5cfim\u2581begin\uff5c>", "<PRE>",
                "\u2581<PRE>", "<|code_prefix|>", "<|prefix|>"),
    "fim_suf": ("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<\uff5cfim\u2581hole\uff5c>", "<SUF>",
                "\u2581<SUF>", "<|code_suffix|>", "<|suffix|>"),
    "fim_mid": ("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<\uff5cfim\u2581end\uff5c>", "<MID>",
                "\u2581<MID>", "<|code_middle|>", "<|middle|>"),
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}  # fmt: skip
_FILL_ENDS = ("fim_pad", "fim_rep", "fim_sep")
_FILL_BEFORE = {"fim_pre": "prefix", "fim_suf": "suffix", "fim_mid": "middle"}  # names in early files
# Texts that end generation (and are control tokens) in whatever vocabulary they occur.
_ENDS = (
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
    "<end_of_turn>", "<|endoftext|>", "<|eom_id|>", "<EOT>", "_<EOT>", "\u2581<EOT>", "[EOT]", "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "[e~[",
)  # fmt: skip

# Special ids a file need not state, by tokenizer.ggml.model.
_DEFAULT_IDS = {
    "llama": {"bos": 1, "eos": 2, "unknown": 0},
    "bert": {"cls": 101, "unknown": 100, "seperator": 102, "padding": 0},
    "t5": {"eos": 1, "unknown": 2, "padding": 0},
}


class Vocabulary:
    """Pieces and types by id; ids by piece.

    pieces: the file's own spelling, shape (n,); bytes that are not UTF-8 appear as lone surrogates
    types: GGUF token types, shape (n,), after the promotions described above
    ids: piece -> id (the lowest, if a piece occurs twice)
    eog_ids: ids that end generation
    fill_ids: ids of the fill-in-the-middle tokens there are, by "fim_pre", "fim_suf", "fim_mid", ...

    Errors: ModelFileError for lists that are missing, of wrong type or length. A special id outside the
    vocabulary is ignored with a RuntimeWarning.
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self.metadata = metadata
        self.kind = str(metadata.get(_PREFIX + "model", ""))
        self.pieces = self._read_pieces()
        self.n = len(self.pieces)
        self.ids: dict[str, int] = dict(zip(self.pieces, range(self.n), strict=True))
        if len(self.ids) < self.n:
            self.ids = dict(zip(reversed(self.pieces), range(self.n - 1, -1, -1), strict=True))
        self.bos_id = self._special_id("bos")
        if self.bos_id is None and self.kind == "bert":
            self.bos_id = self._special_id("cls")
        self.eos_id = self._special_id("eos")
        self.unk_id = self._special_id("unknown")
        self.sep_id = self._special_id("seperator")  # the key's own spelling
        self.pad_id = self._special_id("padding")
        self.types = self._read_types()
        self.fill_ids: dict[str, int] = {}
        self.eot_id, self.eog_ids = self._find_ends()

    def flag(self, name: str, default: bool) -> bool:
        """The boolean `tokenizer.ggml.<name>`."""
        value = self.metadata.get(_PREFIX + name, default)
        if not isinstance(value, (bool, int)):
            raise ModelFileError(f"{_PREFIX}{name} is {type(value).__name__}, not a boolean")
        return bool(value)

    def array(self, name: str) -> Any:
        """The list or numpy array `tokenizer.ggml.<name>`, or None."""
        value = self.metadata.get(_PREFIX + name)
        if value is not None and (isinstance(value, (str, bytes)) or not hasattr(value, "__len__")):
            raise ModelFileError(f"{_PREFIX}{name} is {type(value).__name__}, not an array")
        return value

    def strings(self, name: str) -> list[str]:
        """The string array `tokenizer.ggml.<name>`; ModelFileError if absent or not strings."""
        value = self.array(name)
        if value is None:
            raise ModelFileError(
                f"the file has no {_PREFIX}{name}", "Its tokenizer needs it: the file is incomplete."
            )
        result = value if isinstance(value, list) else list(value)
        if set(map(type, result)) - {str}:
            raise ModelFileError(f"{_PREFIX}{name} is not an array of strings")
        return result

    def of_type(self, *types: int) -> dict[str, int]:
        """Non-empty UTF-8 pieces of the given types -> id."""
        wanted = set(types)
        pieces = ((self.pieces[i], i) for i, t in enumerate(self.types) if t in wanted)
        return {p: i for p, i in pieces if p and self.ids[p] == i and is_utf8(p)}

    def byte_ids(self) -> dict[int, int]:
        """Byte value -> id of the token `<0xNN>` that stands for it."""
        return {b: i for i, t in enumerate(self.types) if t == BYTE and (b := self.byte_value(i)) is not None}

    def byte_value(self, token_id: int) -> int | None:
        """The byte a BYTE token stands for; None for any other spelling than `<0xNN>`."""
        match = _BYTE_PIECE.fullmatch(self.pieces[token_id])
        return int(match[1], 16) if match else None

    def _read_pieces(self) -> list[str]:
        pieces = self.strings("tokens")
        if not pieces:
            raise ModelFileError(f"{_PREFIX}tokens is empty")
        return pieces

    def _read_types(self) -> list[int]:
        array = self.array("token_type")
        if array is None:
            return self._guess_types()
        types: list[int] = array.tolist() if hasattr(array, "tolist") else list(array)
        if len(types) != self.n:
            raise ModelFileError(f"{_PREFIX}token_type has {len(types)} entries for {self.n} tokens")
        if odd := set(types) - set(range(BYTE + 1)):  # 0: undefined
            raise ModelFileError(
                f"{_PREFIX}token_type holds {min(odd, key=repr)!r}; the types are 0 to {BYTE}"
            )
        return types

    def _guess_types(self) -> list[int]:
        """For files without types: the named special ids are control tokens, `<0xNN>` are bytes."""
        types = [NORMAL] * self.n
        for special in (self.bos_id, self.eos_id, self.pad_id, self.sep_id):
            if special is not None:
                types[special] = CONTROL
        if self.unk_id is not None:
            types[self.unk_id] = UNKNOWN
        if self.kind != "gpt2":
            for value in range(256):
                token_id = self.ids.get(f"<0x{value:02X}>")
                if token_id is not None:
                    types[token_id] = BYTE
        return types

    def _special_id(self, name: str) -> int | None:
        key = f"{_PREFIX}{name}_token_id"
        value = self.metadata.get(key)
        if value is None:
            default = _DEFAULT_IDS.get(self.kind, {}).get(name)
            return default if default is not None and default < self.n else None
        if not isinstance(value, int) or isinstance(value, bool):
            raise ModelFileError(f"{key} is {type(value).__name__}, not an integer")
        if 0 <= value < self.n:
            return value
        if value not in (-1, _NO_TOKEN):
            warnings.warn(
                f"{key} = {value} is outside the vocabulary of {self.n}; ignored",
                RuntimeWarning,
                stacklevel=4,
            )
        return None

    def _control_named(self, texts: Iterable[str]) -> Iterator[int]:
        """Ids of the tokens among `texts` that are not ordinary text; from here on they are control."""
        for text in texts:
            token_id = self.ids.get(text)
            if token_id is not None and (self.types[token_id] != NORMAL or not self._is_merged(text)):
                self.types[token_id] = CONTROL
                yield token_id

    def _is_merged(self, text: str) -> bool:
        """Whether one of the file's merges makes `text`."""
        lines = {f"{text[:at]} {text[at:]}" for at in range(1, len(text))}
        return not lines.isdisjoint(self.array("merges") or ())

    def _find_ends(self) -> tuple[int | None, frozenset[int]]:
        """(end-of-turn id, all ids that end generation); corrects the types of tokens known by name."""
        eot, eom = self._special_id("eot"), self._special_id("eom")
        if eot is None:
            eot = next(self._control_named(_EOT), None)
        ends: set[int | None] = {self.eos_id, eot, eom}
        for name, texts in _FILL.items():
            token_id = self._special_id(name)
            if token_id is None and name in _FILL_BEFORE:
                token_id = self._special_id(_FILL_BEFORE[name])
            if token_id is None:
                token_id = next(self._control_named(texts), None)
            if token_id is not None:
                self.fill_ids[name] = token_id
            if name in _FILL_ENDS:
                ends.add(token_id)
        ends.update(self._control_named(_ENDS))
        # Gemma has <s> and </s> as markup, user-defined both; elsewhere </s> ends a sentence.
        if "<s>" not in self.ids or self.types[self.ids["<s>"]] != USER_DEFINED:
            ends.update(self._control_named(("</s>",)))
        # Harmony and its relatives: <|end|> closes one message of several, these close the turn.
        if {"<|return|>", "<|call|>"} <= self.ids.keys() or {"<|calls|>", "<|flush|>"} <= self.ids.keys():
            ends.discard(self.ids.get("<|end|>"))
        return eot, frozenset(i for i in ends if i is not None)


def is_utf8(piece: str) -> bool:
    """False if the piece holds bytes that are not UTF-8 (lone surrogates)."""
    try:
        piece.encode()
    except UnicodeEncodeError:
        return False
    return True


def utf8(piece: str) -> bytes:
    """The piece's bytes, those that are not UTF-8 included."""
    try:
        return piece.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return piece.encode("utf-8", "surrogatepass")
