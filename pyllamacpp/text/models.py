"""Builds the Hugging Face `tokenizers` pipeline of a GGUF vocabulary.

Special and user-defined tokens are not part of it: the caller cuts them out first (matcher.py), so that one
pipeline serves text with and without special tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tokenizers
from tokenizers import Regex, models, normalizers, pre_tokenizers

from ..errors import ModelFileError, PyllamacppError
from .pretokenizers import PreTokenizer
from .vocabulary import CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, Vocabulary, is_utf8

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SPACE = "\u2581"  # how SentencePiece spells a space
_LONGEST = (
    512  # bytes of a unigram piece (SentencePiece itself stops at 16 characters by default): the library
)
# keeps pieces in a tree and forgets it by recursion, a stack frame for each byte


def build(vocabulary: Vocabulary, pre: PreTokenizer | None) -> tokenizers.Tokenizer:
    """The pipeline for `vocabulary.kind`; `pre` is given for the byte-pair kinds and only for them."""
    builders: dict[str, Callable[[Vocabulary], tokenizers.Tokenizer]] = {
        "llama": _sentencepiece_bpe,
        "bert": _wordpiece,
        "t5": _unigram,
    }
    try:
        return _byte_pair(vocabulary, pre) if pre else builders[vocabulary.kind](vocabulary)
    except PyllamacppError:
        raise
    except BaseException as error:
        if not is_library_error(error):
            raise
        raise ModelFileError(f"no tokenizer can be built from the file's vocabulary: {error}") from error


def is_library_error(error: BaseException) -> bool:
    """Whether `tokenizers` may have raised it: bare Exception, or a panic of its Rust code, which is none."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def _ids(vocabulary: Vocabulary) -> dict[str, int]:
    """piece -> id without the pieces that are not UTF-8: no text contains them."""
    if is_utf8("\n".join(vocabulary.pieces)):
        return vocabulary.ids
    return {piece: i for piece, i in vocabulary.ids.items() if is_utf8(piece)}


def _bpe(vocabulary: Vocabulary, merges: list[tuple[str, str]], **options: Any) -> models.BPE:
    """The model without control pieces, so that no text can become one, by merging or as a whole."""
    control = vocabulary.of_type(CONTROL)
    ids = _ids(vocabulary).copy()
    control.pop(options.get("unk_token") or "", None)
    for piece in control:
        del ids[piece]
    try:
        return models.BPE(vocab=ids, merges=merges, **options)
    except BaseException as error:
        allowed = [(a, b) for a, b in merges if control.keys().isdisjoint((a, b, a + b))]
        if not is_library_error(error) or len(allowed) == len(merges):
            raise
        return models.BPE(vocab=ids, merges=allowed, **options)


def _unknown_piece(vocabulary: Vocabulary) -> str | None:
    token_id = vocabulary.unk_id
    if token_id is None:
        token_id = next((i for i, t in enumerate(vocabulary.types) if t == UNKNOWN), None)
    piece = None if token_id is None else vocabulary.pieces[token_id]
    return None if piece is None or not is_utf8(piece) else piece


def _split(regexes: list[str]) -> list[Any]:
    return [pre_tokenizers.Split(Regex(regex), "isolated") for regex in regexes]


def _merges(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """The file's merges as pairs; the left piece may itself begin with a space."""
    lines = vocabulary.strings("merges")
    joined = "\n".join(lines)
    if not is_utf8(joined):
        lines = [line for line in lines if is_utf8(line)]
    pairs: list[Any]
    if joined.startswith(" ") or "\n " in joined:
        pairs = [(line[:at], line[at + 1 :]) for line in lines for at in (line.find(" ", 1),) if at > 0]
    else:
        pairs = [tuple(line.split(" ", 1)) for line in lines]
    if len(pairs) < len(lines) or set(map(len, pairs)) - {2}:
        raise ModelFileError("tokenizer.ggml.merges has an entry that is not two pieces with a space between")
    return pairs


def _byte_pair(vocabulary: Vocabulary, pre: PreTokenizer) -> tokenizers.Tokenizer:
    """BPE with the file's merges, in the byte alphabet or (gemma4) in raw UTF-8 with byte tokens."""
    model = _bpe(
        vocabulary,
        _merges(vocabulary),
        ignore_merges=pre.ignore_merges,
        byte_fallback=not pre.byte_level,
        fuse_unk=not pre.byte_level,
        unk_token=None if pre.byte_level else _unknown_piece(vocabulary),
    )
    pipeline = tokenizers.Tokenizer(model)
    steps = _split(pre.regexes)
    if pre.escape_whitespaces:
        pipeline.normalizer = normalizers.Replace(" ", SPACE)
    if vocabulary.kind == "whitespace":
        steps.insert(0, pre_tokenizers.WhitespaceSplit())
        if vocabulary.flag("normalizer.lowercase", pre.lowercase):
            pipeline.normalizer = normalizers.Lowercase()
    if pre.byte_level:
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    pipeline.pre_tokenizer = pre_tokenizers.Sequence(steps)
    return pipeline


def _sentencepiece_bpe(vocabulary: Vocabulary) -> tokenizers.Tokenizer:
    """SentencePiece BPE: any two adjacent pieces may merge into a piece, the one of highest score first."""
    import numpy as np

    from .. import _core

    scores = _scores(vocabulary)
    merges = _core.spm_merges(vocabulary.pieces, scores, np.asarray(vocabulary.types, dtype=np.int32))
    model = _bpe(vocabulary, merges, byte_fallback=True, fuse_unk=True, unk_token=_unknown_piece(vocabulary))
    pipeline = tokenizers.Tokenizer(model)
    pipeline.normalizer = normalizers.Replace(" ", SPACE)
    return pipeline


def _scores(vocabulary: Vocabulary) -> NDArray[np.float32]:
    """`tokenizer.ggml.scores`, shape (n,), free of NaN."""
    import numpy as np

    scores = vocabulary.array("scores")
    if scores is None or len(scores) != vocabulary.n:
        found = "no" if scores is None else len(scores)
        raise ModelFileError(f"tokenizer.ggml.scores has {found} entries for {vocabulary.n} tokens")
    result = np.asarray(scores, dtype=np.float32)
    if np.isnan(result).any():
        raise ModelFileError("tokenizer.ggml.scores holds NaN")
    return result


def _unigram(vocabulary: Vocabulary) -> tokenizers.Tokenizer:
    """SentencePiece unigram (T5): the likeliest segmentation by piece scores."""
    scores = _scores(vocabulary).tolist()
    text_types = (NORMAL, USER_DEFINED, UNUSED)
    lowest = min((s for s, t in zip(scores, vocabulary.types, strict=True) if t == NORMAL), default=0.0)
    weighted: list[tuple[str, float]] = []
    for i, (piece, score, kind) in enumerate(zip(vocabulary.pieces, scores, vocabulary.types, strict=True)):
        if kind in text_types and is_utf8(piece):
            if len(piece.encode()) > _LONGEST:
                raise ModelFileError(
                    f"token {i} has {len(piece)} characters; a unigram vocabulary's have {_LONGEST} at most"
                )
            weighted.append((piece, 0.0 if kind == USER_DEFINED else score))
        else:  # not for text to become: a name with a space, which no word of the text has
            weighted.append((f" {i}", lowest))
    pipeline = tokenizers.Tokenizer(models.Unigram(weighted, unk_id=vocabulary.unk_id, byte_fallback=False))
    steps: list[Any] = []
    charsmap = vocabulary.array("precompiled_charsmap")
    if charsmap is not None:
        data = charsmap.tobytes() if hasattr(charsmap, "tobytes") else bytes(charsmap)
        if len(data) < 4 or int.from_bytes(data[:4], "little") + 4 >= len(data):
            raise ModelFileError("tokenizer.ggml.precompiled_charsmap is cut short")
        steps.append(normalizers.Precompiled(data))
    if vocabulary.flag("remove_extra_whitespaces", False):
        steps += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    if steps:
        pipeline.normalizer = normalizers.Sequence(steps)
    scheme = "always" if vocabulary.flag("add_space_prefix", True) else "never"
    pipeline.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=True)
    return pipeline


def _wordpiece(vocabulary: Vocabulary) -> tokenizers.Tokenizer:
    """BERT: word starts are U+2581-prefixed in GGUF and bare here, continuations bare there and ## here."""
    ids: dict[str, int] = {}
    for i, (piece, kind) in enumerate(zip(vocabulary.pieces, vocabulary.types, strict=True)):
        if is_utf8(piece):
            if kind not in (CONTROL, UNKNOWN):
                piece = piece[1:] if piece.startswith(SPACE) else "##" + piece
            ids.setdefault(piece, i)
    unknown = _unknown_piece(vocabulary)
    if unknown is None:
        raise ModelFileError("the vocabulary has no unknown token (tokenizer.ggml.unknown_token_id)")
    ids.setdefault(unknown, vocabulary.ids[unknown])
    pipeline = tokenizers.Tokenizer(
        models.WordPiece(vocab=ids, unk_token=unknown, max_input_chars_per_word=100)
    )
    lowercase = vocabulary.flag("normalizer.lowercase", True)
    pipeline.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=True,
        strip_accents=vocabulary.flag("normalizer.strip_accents", lowercase),
        lowercase=lowercase,
    )
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return pipeline
