"""From drawn tokens to the result dictionaries of llama-cpp-python (OpenAI's shapes), whole or streamed.

A stream's pieces and a whole answer are the same pieces: the whole is their concatenation.
"""

from __future__ import annotations

import codecs
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from .errors import ParameterError
from .text.stream import TextStream

if TYPE_CHECKING:
    from .generation import Draw, Logits, Tokens
    from .text.tokenizer import Tokenizer


class Scored(NamedTuple):
    """A token with its log-probability (None for a text's first) and the likeliest tokens in its place."""

    id: int
    offset: int  # in the text, in characters
    logprob: float | None
    top: list[tuple[int, float]]


class Piece(NamedTuple):
    """Settled text (whole characters, no part of a stop string) and the scored tokens that begin in it."""

    text: str
    scored: list[Scored]


class Offsets:
    """Where in a text, in characters, each of the byte strings that make it up begins."""

    def __init__(self, start: int = 0) -> None:
        self._at = start
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def next(self, data: bytes) -> int:
        """The offset of `data`, which comes next; inside a character, that of the character."""
        if data and not 0x80 <= data[0] < 0xC0:  # does not continue a character: one begun before is broken
            self._at += len(self._decoder.decode(b"", final=True))
        at = self._at
        self._at += len(self._decoder.decode(data))
        return at


class Answer:
    """Turns draws into pieces and knows, once they are exhausted, how it ended.

    offset: where the answer begins in the text, in characters. scored: whether log-probabilities are wanted.
    spelled: control tokens whose bytes are part of the text.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stop: Sequence[str],
        *,
        scored: bool,
        offset: int = 0,
        spelled: Mapping[int, bytes] | None = None,
    ) -> None:
        self.finish_reason = "length"
        self.n_tokens = 0  # drawn, with those of a stop string, without the one that ends generation
        self._tokenizer = tokenizer
        self._stream = TextStream(stop)
        self._wanted = scored
        self._spelled = spelled or {}
        self._noted: list[Scored] = []
        self._offsets = Offsets(offset)
        self._settled_to = offset

    def pieces(self, draws: Iterable[Draw]) -> Iterator[Piece]:
        """Read draws until one ends generation, a stop string is complete, or there are no more."""
        ends, token_bytes, push = self._tokenizer.eog_ids, self._tokenizer.token_bytes, self._stream.push
        for token, logprob, top in draws:
            if token in ends:
                self.finish_reason = "stop"
                break
            self.n_tokens += 1
            data = token_bytes(token) or self._spelled.get(token, b"")
            if self._wanted:
                self._noted.append(Scored(token, self._offsets.next(data), logprob, top))
            text = push(data)
            if self._stream.stopped is not None:
                self.finish_reason = "stop"
                yield from self._last(text)
                return
            if text:
                yield self._piece(text)
        yield from self._last(self._stream.flush())

    def _piece(self, text: str) -> Piece:
        self._settled_to += len(text)
        n = sum(scored.offset < self._settled_to for scored in self._noted)
        ready, self._noted = self._noted[:n], self._noted[n:]
        return Piece(text, ready)

    def _last(self, text: str) -> Iterator[Piece]:
        """The rest; tokens that lie wholly in a stop string go with it."""
        piece = self._piece(text)
        rest = [] if self._stream.stopped is not None else self._noted
        if piece.text or piece.scored or rest:
            yield Piece(piece.text, piece.scored + rest)


class PromptScorer:
    """Collects the log-probabilities of a prompt's tokens from the rows of logits that precede them."""

    def __init__(self, tokenizer: Tokenizer, prompt: Tokens, n_top: int) -> None:
        self._tokenizer = tokenizer
        self._prompt = prompt
        self._n_top = n_top
        self._found: list[tuple[float, list[tuple[int, float]]]] = []

    def __call__(self, start: int, rows: Logits) -> None:
        """rows (k, n_vocab) follow the tokens at start, start + 1, ..."""
        for row, token in zip(rows, self._prompt[start + 1 :], strict=False):
            self._found.append(log_probabilities(row, int(token), self._n_top))

    def scored(self) -> list[Scored]:
        """The prompt's tokens without BOS; the first has no log-probability, as OpenAI's API has it."""
        first = int(len(self._prompt) > 1 and self._prompt[0] == self._tokenizer.bos_id)
        offsets = Offsets()
        result = []
        for i in range(first, len(self._prompt)):
            token = int(self._prompt[i])
            logprob, top = (None, []) if i == first else self._found[i - 1]
            data = self._tokenizer.decode_bytes([token], special=True, first=i == first)
            result.append(Scored(token, offsets.next(data), logprob, top))
        return result


def log_softmax(logits: Any, axis: int = -1) -> Logits:
    """Logarithms of the probabilities that logits stand for, along `axis`."""
    rows = np.asarray(logits, np.float64)
    shifted = rows - rows.max(axis=axis, keepdims=True)
    result: Logits = (shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))).astype(np.float32)
    return result


def log_probabilities(row: Logits, token: int, n_top: int) -> tuple[float, list[tuple[int, float]]]:
    """Of the token, and the n_top likeliest with theirs (equal ones: lowest id first). row: (n_vocab)."""
    highest = float(np.max(row))
    log_sum = highest + float(np.log(np.exp(row - highest, dtype=np.float64).sum()))
    if n_top == 0:
        return float(row[token]) - log_sum, []
    n_top = min(n_top, len(row))
    least = np.partition(row, len(row) - n_top)[len(row) - n_top]
    among = np.flatnonzero(row >= least)
    best = among[np.argsort(-row[among], kind="stable")][:n_top]
    return float(row[token]) - log_sum, [(int(i), float(row[i]) - log_sum) for i in best]


def token_bytes(tokenizer: Tokenizer, token: int) -> bytes:
    """The token's bytes; a control token's own spelling, so that no two tokens look empty."""
    return tokenizer.token_bytes(token) or tokenizer.piece(token).encode("utf-8", "replace")


def _legacy_text(tokenizer: Tokenizer, token: int) -> str:
    """The token as text; parts of characters as OpenAI's `bytes:\\xe2\\x80`, which keeps them apart."""
    data = token_bytes(tokenizer, token)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def legacy_logprobs(tokenizer: Tokenizer, scored: Sequence[Scored]) -> dict[str, Any]:
    """The four parallel lists of the completions API; the token itself is always among its top_logprobs."""
    tops: list[dict[str, float] | None] = []
    for one in scored:
        if one.logprob is None:
            tops.append(None)
            continue
        top: dict[str, float] = {}
        for token, logprob in [*one.top, (one.id, one.logprob)]:
            top.setdefault(_legacy_text(tokenizer, token), logprob)
        tops.append(top)
    return {
        "tokens": [_legacy_text(tokenizer, one.id) for one in scored],
        "text_offset": [one.offset for one in scored],
        "token_logprobs": [one.logprob for one in scored],
        "top_logprobs": tops,
    }


def chat_logprobs(tokenizer: Tokenizer, scored: Sequence[Scored]) -> dict[str, Any]:
    """The chat API's list of objects with text, log-probability and bytes."""

    def entry(token: int, logprob: float | None) -> dict[str, Any]:
        data = token_bytes(tokenizer, token)
        return {"token": data.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(data)}

    content = [
        {**entry(one.id, one.logprob), "top_logprobs": [entry(token, logprob) for token, logprob in one.top]}
        for one in scored
    ]
    return {"content": content, "refusal": None}


class Shape(Protocol):
    """One API's dictionaries around the same pieces."""

    def opening(self) -> Iterator[dict[str, Any]]: ...
    def delta(self, piece: Piece) -> dict[str, Any]: ...
    def closing(self, finish_reason: str) -> dict[str, Any]: ...
    def whole(self, piece: Piece, finish_reason: str, usage: dict[str, Any]) -> dict[str, Any]: ...


class CompletionShape:
    """`text_completion` objects."""

    def __init__(self, tokenizer: Tokenizer, model: str, *, scored: bool) -> None:
        self._tokenizer = tokenizer
        self._scored = scored
        self._head = {
            "id": f"cmpl-{uuid.uuid4()}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }

    def opening(self) -> Iterator[dict[str, Any]]:
        return iter(())

    def _object(
        self, text: str, logprobs: dict[str, Any] | None, finish_reason: str | None
    ) -> dict[str, Any]:
        choice = {"text": text, "index": 0, "logprobs": logprobs, "finish_reason": finish_reason}
        return {**self._head, "choices": [choice]}

    def _logprobs(self, piece: Piece) -> dict[str, Any] | None:
        return legacy_logprobs(self._tokenizer, piece.scored) if self._scored else None

    def delta(self, piece: Piece) -> dict[str, Any]:
        return self._object(piece.text, self._logprobs(piece), None)

    def closing(self, finish_reason: str) -> dict[str, Any]:
        return self._object("", None, finish_reason)

    def whole(self, piece: Piece, finish_reason: str, usage: dict[str, Any]) -> dict[str, Any]:
        return {**self._object(piece.text, self._logprobs(piece), finish_reason), "usage": usage}


class ChatShape:
    """`chat.completion` objects and `chat.completion.chunk`s."""

    def __init__(self, tokenizer: Tokenizer, model: str, *, scored: bool) -> None:
        self._tokenizer = tokenizer
        self._scored = scored
        self._head = {"id": f"chatcmpl-{uuid.uuid4()}", "created": int(time.time()), "model": model}

    def _chunk(
        self, delta: dict[str, str], logprobs: dict[str, Any] | None, finish_reason: str | None
    ) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        return {**self._head, "object": "chat.completion.chunk", "choices": [choice]}

    def _logprobs(self, piece: Piece) -> dict[str, Any] | None:
        return chat_logprobs(self._tokenizer, piece.scored) if self._scored else None

    def opening(self) -> Iterator[dict[str, Any]]:
        yield self._chunk({"role": "assistant"}, None, None)

    def delta(self, piece: Piece) -> dict[str, Any]:
        return self._chunk({"content": piece.text}, self._logprobs(piece), None)

    def closing(self, finish_reason: str) -> dict[str, Any]:
        return self._chunk({}, None, finish_reason)

    def whole(self, piece: Piece, finish_reason: str, usage: dict[str, Any]) -> dict[str, Any]:
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": piece.text},
            "logprobs": self._logprobs(piece),
            "finish_reason": finish_reason,
        }
        return {**self._head, "object": "chat.completion", "choices": [choice], "usage": usage}


def usage(n_prompt: int, n_cached: int, n_completion: int) -> dict[str, Any]:
    """Counts of tokens; cached ones are prompt tokens whose keys and values were still there."""
    return {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_completion,
        "total_tokens": n_prompt + n_completion,
        "prompt_tokens_details": {"cached_tokens": n_cached},
    }


def as_openai(result: dict[str, Any] | Iterator[dict[str, Any]]) -> Any:
    """A chat's result as the openai package's ChatCompletion, a stream as its ChatCompletionChunks."""
    try:
        from openai.types.chat import ChatCompletion, ChatCompletionChunk  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise ParameterError(
            "create_chat_completion_openai_v1 needs the openai package",
            "pip install openai, or use create_chat_completion, whose dictionaries have the same fields.",
        ) from error
    if isinstance(result, dict):
        return ChatCompletion(**result)
    return (ChatCompletionChunk(**chunk) for chunk in result)
