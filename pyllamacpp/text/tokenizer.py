"""Text <-> token ids, from the metadata of a GGUF file alone."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from ..errors import ModelFileError, ParameterError, UnsupportedModelError
from . import models, pretokenizers
from .matcher import TokenMatcher
from .vocabulary import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, Vocabulary, utf8

_BYTE_PAIR_KINDS = ("gpt2", "gemma4", "whitespace")
_KINDS = (*_BYTE_PAIR_KINDS, "llama", "bert", "t5")
_INVALID = re.compile("[\udc80-\udcff]+")  # what `surrogateescape` makes of bytes that are not UTF-8
_BLANK = (  # Unicode's White_Space, which is what `tokenizers` strips
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029"
    "\u202f\u205f\u3000"
)


def _byte_alphabet() -> list[str]:
    """GPT-2's printable stand-in for each byte value."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = [chr(b) if b in shown else "" for b in range(256)]
    hidden = (chr(c) for c in range(256, 512))
    return [c or next(hidden) for c in alphabet]


_ALPHABET = _byte_alphabet()
# Stand-in -> byte as chr(byte); the other characters of Latin-1 become one that Latin-1 cannot encode.
_FROM_ALPHABET = {ord(c): chr(b) for b, c in enumerate(_ALPHABET)} | {
    c: "\uffff" for c in range(256) if chr(c) not in _ALPHABET
}


class Tokenizer:
    """A vocabulary and its encoder. Immutable once made; safe to share between threads.

    n_vocab: number of tokens in the file's list
    bos_id, eos_id, eot_id, unk_id, sep_id, pad_id: int | None
    add_bos, add_eos, add_sep: whether the model expects them around a text
    eog_ids: ids that end generation
    fill_ids: ids of fill-in-the-middle tokens, by "fim_pre", "fim_suf", "fim_mid", ...
    """

    def __init__(self, vocabulary: Vocabulary, pre: pretokenizers.PreTokenizer | None) -> None:
        self._vocabulary = vocabulary
        self._pipeline = models.build(vocabulary, pre)
        self._byte_level = pre is not None and pre.byte_level
        self.n_vocab = vocabulary.n
        self.bos_id, self.eos_id, self.eot_id = vocabulary.bos_id, vocabulary.eos_id, vocabulary.eot_id
        self.unk_id, self.sep_id, self.pad_id = vocabulary.unk_id, vocabulary.sep_id, vocabulary.pad_id
        self.eog_ids = vocabulary.eog_ids
        self.fill_ids = vocabulary.fill_ids
        kind = vocabulary.kind
        wants_bos = kind in ("llama", "bert") or (pre is not None and pre.add_bos)
        # Gemma 4 files state add_bos_token = false, yet the model was trained with it.
        self.add_bos = self.bos_id is not None and (
            vocabulary.flag("add_bos_token", wants_bos) or (pre is not None and pre.name == "gemma4")
        )
        self.add_eos = self.eos_id is not None and vocabulary.flag("add_eos_token", kind == "t5")
        wants_sep = kind == "bert" or (pre is not None and pre.add_sep)
        self.add_sep = self.sep_id is not None and vocabulary.flag("add_sep_token", wants_sep)
        # SentencePiece writes a space before the text; T5's pipeline does so itself.
        self._space = kind == "llama" and vocabulary.flag("add_space_prefix", True)
        self._drop_space = (
            self._space or kind == "bert" or (kind == "t5" and vocabulary.flag("add_space_prefix", True))
        )
        self._table: list[bytes | None] = [None] * self.n_vocab

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], *, pre: str | None = None) -> Tokenizer:
        """The tokenizer a GGUF file describes (`GgufFile.metadata`).

        pre: overrides `tokenizer.ggml.pre`, for byte-pair vocabularies. A file without that key gets
        "default", the custom of the format.

        Errors: UnsupportedModelError for an unknown kind of vocabulary or pre-tokenizer, ModelFileError for
        metadata that contradicts itself, ParameterError for a `pre` that is unknown or has no use.
        """
        vocabulary_kind = metadata.get("tokenizer.ggml.model")
        if vocabulary_kind is None or vocabulary_kind in ("none", "no_vocab"):
            raise ModelFileError("the file has no tokenizer", "Only its token ids can be used, not text.")
        if vocabulary_kind not in _KINDS:
            raise UnsupportedModelError(
                f"tokenizer.ggml.model {vocabulary_kind!r} is not supported",
                f"Supported: {', '.join(_KINDS)}.",
            )
        byte_pair = vocabulary_kind in _BYTE_PAIR_KINDS
        if pre is not None and (not byte_pair or vocabulary_kind == "gemma4"):
            raise ParameterError(
                f"pre={pre!r}: a vocabulary of kind {vocabulary_kind!r} has no choice of pre-tokenizer"
            )
        chosen = None
        if byte_pair:
            name = (
                "gemma4" if vocabulary_kind == "gemma4" else metadata.get("tokenizer.ggml.pre") or "default"
            )
            chosen = pretokenizers.lookup(pre or str(name), override=pre is not None)
        return cls(Vocabulary(metadata), chosen)

    def encode(self, text: str, *, special: bool, first: bool = True) -> list[int]:
        """Token ids of `text`, no BOS added.

        special: whether the texts of control tokens become those tokens; where false they are text like any
        other. User-defined tokens are found either way.
        first: `text` begins a text or follows a token; else it continues one, so it does not begin with the
        space that SentencePiece writes before a text.

        Errors: ParameterError if the text holds a lone surrogate.
        """
        ids: list[int] = []
        for i, piece in enumerate(self._cut(text, self._all_special if special else self._user_defined)):
            if isinstance(piece, int):
                ids.append(piece)
            else:
                ids += self._encode_plain(piece) if first or i else self._encode_raw(piece)
        return ids

    def encode_bytes(self, data: bytes, *, special: bool) -> list[int]:
        """Like `encode` for UTF-8 bytes. Bytes that are not UTF-8 become the vocabulary's byte tokens, so
        that decoding gives them back; where it has none for a byte, U+FFFD stands for it."""
        text = data.decode("utf-8", "surrogateescape")
        ids: list[int] = []
        start = 0
        for invalid in _INVALID.finditer(text):
            ids += self.encode(text[start : invalid.start()], special=special, first=start == 0)
            start = invalid.end()
            for byte in invalid.group().encode("utf-8", "surrogateescape"):
                token_id = self._byte_ids.get(byte)
                ids += self._encode_raw("\ufffd") if token_id is None else [token_id]
        return ids + self.encode(text[start:], special=special, first=start == 0)

    def split_special(self, text: str) -> Iterator[str | int]:
        """`text` cut at control tokens: their ids, and between them the plain stretches (never empty)."""
        return self._cut(text, self._control)

    @property
    def control_texts(self) -> Collection[str]:
        """What `split_special` looks for."""
        return self._control_ids.keys()

    def with_bos(self, ids: list[int]) -> list[int]:
        """`ids` with exactly one BOS in front if the model expects one (`add_bos`), else as they are."""
        if self.bos_id is None or not self.add_bos or ids[:1] == [self.bos_id]:
            return ids
        return [self.bos_id, *ids]

    def token_bytes(self, token_id: int, *, special: bool = False) -> bytes:
        """The bytes `token_id` stands for; b"" for control and unknown tokens unless `special`.

        Errors: ParameterError if there is no such token.
        """
        known = self._table[self._checked(token_id)]
        if known is None:
            known = self._table[token_id] = self._spell(token_id)
        if not special and self._vocabulary.types[token_id] in (CONTROL, UNKNOWN):
            return b""
        return known

    def decode_bytes(self, ids: Iterable[int], *, special: bool = False, first: bool = True) -> bytes:
        """The bytes of `ids`.

        special: spell control tokens too
        first: `ids` begin a text, so the space that SentencePiece writes before a text is dropped

        Errors: ParameterError if an id is not in the vocabulary.
        """
        parts: list[bytes] = []
        for token_id in ids:
            data = self.token_bytes(token_id, special=special)
            if data and first:
                first = False
                if self._drop_space and self._vocabulary.types[token_id] == NORMAL:
                    data = data.removeprefix(b" ")
            parts.append(data)
        return b"".join(parts)

    def piece(self, token_id: int) -> str:
        """The file's own spelling of a token, with U+2581 or the byte alphabet as it stands."""
        return self._vocabulary.pieces[self._checked(token_id)]

    @cached_property
    def _control_ids(self) -> dict[str, int]:
        return self._vocabulary.of_type(CONTROL)

    @cached_property
    def _control(self) -> TokenMatcher:
        return TokenMatcher(self._control_ids)

    @cached_property
    def _user_defined(self) -> TokenMatcher:
        return TokenMatcher(self._vocabulary.of_type(USER_DEFINED))

    @cached_property
    def _all_special(self) -> TokenMatcher:
        return TokenMatcher(self._vocabulary.of_type(CONTROL, USER_DEFINED, UNKNOWN))

    @cached_property
    def _byte_ids(self) -> dict[int, int]:
        if self._byte_level:
            ids = self._vocabulary.ids
            return {b: ids[c] for b, c in enumerate(_ALPHABET) if c in ids}
        return self._vocabulary.byte_ids()

    @cached_property
    def _stripping(self) -> tuple[frozenset[int], frozenset[int]]:
        """Tokens that swallow the blanks (before, after) them. Files do not say; names of models do."""
        vocabulary = self._vocabulary
        name = str(vocabulary.metadata.get("general.name", "")).lower()
        pre = str(vocabulary.metadata.get("tokenizer.ggml.pre", ""))
        arch = str(vocabulary.metadata.get("general.architecture", ""))
        if pre.startswith("jina-v2-") or arch in ("nomic-bert-moe", "jina-bert-v3"):
            return frozenset({vocabulary.ids.get("<mask>", -1)}), frozenset()
        if "phi-3" in name or "phi3" in name:
            tokens = vocabulary.of_type(CONTROL, USER_DEFINED, UNKNOWN)
            keep = ("<unk>", "<s>", "<|endoftext|>")
            return frozenset(), frozenset(i for text, i in tokens.items() if text not in keep)
        if "modern-bert" in name:
            return frozenset({vocabulary.ids.get("[MASK]", -1)}), frozenset()
        return frozenset(), frozenset()

    def _cut(self, text: str, matcher: TokenMatcher) -> Iterator[str | int]:
        """Token ids where `matcher` finds them, and the text between (never empty)."""
        strip_before, strip_after = self._stripping
        done = 0
        blank_before = False  # whether the last token swallows the blanks after it
        for start, end, token_id in matcher.finditer(text):
            plain = text[done:start]
            if blank_before:
                plain = plain.lstrip(_BLANK)
            if token_id in strip_before:
                plain = plain.rstrip(_BLANK)
            if plain:
                yield plain
            yield token_id
            done, blank_before = end, token_id in strip_after
        plain = text[done:].lstrip(_BLANK) if blank_before else text[done:]
        if plain:
            yield plain

    def _encode_plain(self, text: str) -> list[int]:
        return self._encode_raw(" " + text if self._space else text)

    def _encode_raw(self, text: str) -> list[int]:
        """Ids of text without tokens to cut out and without the space SentencePiece would write before it."""
        try:
            ids: list[int] = self._pipeline.encode(text, add_special_tokens=False).ids
        except (TypeError, UnicodeEncodeError):
            at = next(i for i, c in enumerate(text) if "\ud800" <= c <= "\udfff")
            raise ParameterError(
                f"the text holds a lone surrogate (U+{ord(text[at]):04X}), which is not a character",
                "Decode bytes with errors='replace', or pass them as bytes.",
            ) from None
        except BaseException as error:
            if not models.is_library_error(error):
                raise
            raise ModelFileError(f"the file's vocabulary cannot spell the text: {error}") from error
        return ids

    def _checked(self, token_id: int) -> int:
        if not 0 <= token_id < self.n_vocab:
            raise ParameterError(f"token id {token_id} is not in the vocabulary of {self.n_vocab}")
        return token_id

    def _spell(self, token_id: int) -> bytes:
        piece, kind = self._vocabulary.pieces[token_id], self._vocabulary.types[token_id]
        if kind == BYTE and (value := self._vocabulary.byte_value(token_id)) is not None:
            return bytes((value,))
        if kind not in (NORMAL, UNUSED):
            return utf8(piece)
        if not self._byte_level:
            return utf8(piece.replace(models.SPACE, " "))
        try:
            return piece.translate(_FROM_ALPHABET).encode("latin-1")
        except UnicodeEncodeError:  # not spelled in the byte alphabet: taken literally
            return utf8(piece)
