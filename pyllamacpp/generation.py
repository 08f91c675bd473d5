"""The one sequence of a `Llama` and the loop that generates its tokens, whichever method asks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypeVar

import numpy as np
import numpy.typing as npt

from . import _core
from .errors import ContextOverflowError, MemoryLimitError, ParameterError
from .params import specs
from .text.breakers import breaker_arrows

if TYPE_CHECKING:
    from .params import SamplingParams
    from .text.tokenizer import Tokenizer

Tokens = npt.NDArray[np.int32]
Logits = npt.NDArray[np.float32]
_Array = TypeVar("_Array", Tokens, Logits)
Draw = tuple[
    int, float, list[tuple[int, float]]
]  # token, its log-probability, the likeliest tokens with theirs
LogitsProcessor = Callable[[Tokens, Logits], Logits]
StoppingCriterion = Callable[[Tokens, Logits], bool]

_PATIENCE = 5.0  # seconds for other threads to take an open stream on
_ROWS_AT_ONCE = 64  # rows of logits held while a prompt is scored: 64 MiB for a vocabulary of 262k


class Turn:
    """Whose turn it is: one request at a time, held to its end, also while its stream is suspended.

        with turn.lock(), turn: ...

    The lock itself is entered and left in C, where no Ctrl-C comes between, so a turn is always given back.
    Another thread waits. The thread that last ran the request would wait for itself, so it gets an error
    instead, unless the request is a stream that another thread (of a pool, say) soon takes on.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runner: int | None = None
        self._paused = False

    def mine(self) -> bool:
        """The calling thread is the last that ran the request in progress."""
        return self._runner == threading.get_ident() and self._lock.locked()

    def lock(self) -> AbstractContextManager[bool]:
        """What to enter first. Error: ParameterError where waiting would never end."""
        others = self._paused and threading.active_count() > 1
        deadline = time.monotonic() + (_PATIENCE if others else 0)
        while self.mine():
            if time.monotonic() >= deadline:
                raise ParameterError(
                    "this thread has a stream of the same Llama open",
                    "Read the stream to its end or call its close() before the next request.",
                )
            time.sleep(0.005)
        return self._lock

    def pause(self) -> None:
        """A stream hands a piece out: whoever asks for the next one runs the request from there on."""
        self._paused = True

    def resume(self) -> None:
        """The calling thread runs the request."""
        self._paused = False
        self._runner = threading.get_ident()

    __enter__ = resume

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._runner = None


class Context:
    """The tokens in the KV pages and the logits that follow them.

    The session alone says how many tokens are held, and they are written down before they are evaluated: an
    exception or Ctrl-C between any two statements leaves tokens and pages in agreement. Logits lost that way
    are computed again.
    """

    def __init__(self, session: _core.Session, n_vocab: int, n_batch: int, *, keep_all: bool) -> None:
        """n_vocab: the tokenizer's; rows of the output beyond it are padding, and no token."""
        self._session: _core.Session | None = session
        n_ctx = session.n_ctx
        self._n_batch = n_batch
        self._keep_all = keep_all
        self.n_ctx = n_ctx
        self.n_vocab = n_vocab
        self._tokens: Tokens = np.empty(n_ctx, np.int32)  # (n_ctx), the first n_tokens are valid
        self.tokens = _read_only(self._tokens.view())  # the same, for the caller's functions too
        self._rows: Logits = np.empty((0, self.n_vocab), np.float32)  # (>= n_tokens or 1, n_vocab)
        self._rows_end = 0  # _rows belong to the tokens before this one

    @property
    def session(self) -> _core.Session:
        if self._session is None:
            raise ParameterError("this Llama is closed", "Open the model again.")
        return self._session

    @property
    def n_tokens(self) -> int:
        return self.session.n_tokens

    @property
    def kv_types(self) -> tuple[str, str]:
        """What keys and values are kept as."""
        return self.session.kv_types

    def close(self) -> None:
        """Give the KV pages back; the weights go with the last session that uses them."""
        self._session = None
        self._rows = np.empty((0, self.n_vocab), np.float32)

    def truncate(self, n_tokens: int) -> None:
        """Keep the first n_tokens."""
        if not isinstance(n_tokens, SupportsIndex) or not 0 <= n_tokens.__index__() <= self.n_tokens:
            raise ParameterError(
                f"n_tokens must be between 0 and the {self.n_tokens} tokens held, not {n_tokens!r}"
            )
        self._rows_end = min(self._rows_end, n_tokens) if self._keep_all else 0
        self.session.truncate(n_tokens)

    def resume(self, prompt: Tokens) -> int:
        """Keep what the held tokens and the prompt have in common; the prompt's last token is left to do.

        Returns: the number of tokens kept.
        """
        common = common_prefix(self.tokens[: self.n_tokens], prompt[:-1])
        self.truncate(common)
        return common

    def eval(self, tokens: Tokens, on_rows: Callable[[int, Logits], None] | None = None) -> None:
        """Run tokens (n) at the next positions, n_batch at a time; Ctrl-C is answered between batches.

        on_rows: called with (first position, logits of it and the next ones (k, n_vocab)) to the end.
        Errors: ContextOverflowError and, where all logits are kept, MemoryLimitError, both beforehand.
        """
        start, n = self.n_tokens, len(tokens)
        if start + n > self.n_ctx:
            held = f"{start} tokens are held and {n} more" if start else f"{n} tokens"
            raise ContextOverflowError(
                f"{held} do not fit the context of {self.n_ctx}",
                "Open the model with a larger n_ctx, or reset().",
            )
        if self._keep_all:
            self._reserve_rows(start + n)
        size = self._n_batch if on_rows is None else min(self._n_batch, _ROWS_AT_ONCE)
        for i in range(0, n, size):
            chunk = tokens[i : i + size]
            rows = self._eval_chunk(start + i, chunk, everything=on_rows is not None, final=i + size >= n)
            if on_rows is not None:
                on_rows(start + i, rows)

    def _eval_chunk(self, start: int, chunk: Tokens, *, everything: bool, final: bool) -> Logits:
        end = start + len(chunk)
        self._tokens[start:end] = chunk
        wanted: Literal["all", "last", "none"]
        wanted = "all" if everything or self._keep_all else "last" if final else "none"
        rows: Logits = self.session.eval(self.tokens[start:end], wanted)[:, : self.n_vocab]
        if self._keep_all:
            self._rows[start:end] = rows
            self._rows_end = end
        elif len(rows):
            self._rows = rows if len(rows) == 1 else rows[-1:].copy()
            self._rows_end = end
        return rows

    def step(self, token: int) -> Logits:
        """Run one token; returns the logits (n_vocab) that follow it."""
        n = self.session.n_tokens
        self._tokens[n] = token
        self.eval(self.tokens[n : n + 1])
        return _read_only(self._rows[n if self._keep_all else 0])

    def restore(self, tokens: Tokens, rows: Logits, pages: npt.NDArray[np.uint8]) -> None:
        """Hold tokens (n) whose pages are given; rows (n or 1, n_vocab) are the logits they came with.

        Nothing is held in between, nor after an error.
        """
        self.truncate(0)
        n = len(tokens)
        self._tokens[:n] = tokens
        if not self._keep_all:
            self._rows, self._rows_end = rows[-1:].copy(), n
        elif len(rows) == n:
            self._reserve_rows(n)
            self._rows[:n], self._rows_end = rows, n
        self.session.restore(n, pages)

    def all_rows(self) -> Logits:
        """(n_tokens, n_vocab) where all logits are kept, else (1, n_vocab) of the last token; read-only."""
        n = self.n_tokens
        if self._rows_end != n:
            first = self._rows_end if self._keep_all else n - 1
            lost = self.tokens[first:n].copy()
            self.truncate(first)
            self.eval(lost)
        return _read_only(self._rows[: n if self._keep_all else min(n, 1)])

    def last_row(self) -> Logits:
        """(n_vocab): the logits that follow the last token. Error: ParameterError where no token is held."""
        if self.n_tokens == 0:
            raise ParameterError(
                "there is nothing to continue: no token has been evaluated", "Call eval(tokens) first."
            )
        row: Logits = self.all_rows()[-1]
        return row

    def _reserve_rows(self, n: int) -> None:
        if n <= len(self._rows):
            return
        capacity = min(self.n_ctx, max(n, 2 * len(self._rows)))
        n_bytes = capacity * self.n_vocab * 4
        available = _core.cpu_info()["memory_available"]
        if n_bytes > available:
            raise MemoryLimitError(
                f"logits_all=True needs {n_bytes >> 20} MiB for the logits of {capacity} tokens, "
                f"{available >> 20} MiB are available",
                "Evaluate fewer tokens, or open the model without logits_all.",
            )
        grown = np.empty((capacity, self.n_vocab), np.float32)
        grown[: self._rows_end] = self._rows[: self._rows_end]
        self._rows = grown


def common_prefix(a: npt.ArrayLike, b: npt.ArrayLike) -> int:
    """How many tokens two sequences have in common from their beginnings."""
    first, second = np.asarray(a), np.asarray(b)
    n = min(len(first), len(second))
    same = first[:n] == second[:n]
    return n if same.all() else int(same.argmin())


def _read_only(view: _Array) -> _Array:
    """A view nobody writes through: what is held and what was evaluated have to stay in agreement."""
    view.flags.writeable = False
    return view


# Fields of SamplingParams that are not the core's, or not in this form.
_OURS = frozenset(
    ["max_tokens", "stop", "logprobs", "seed", "samplers", "logit_bias", "dry_sequence_breakers"]
)


def make_sampler(tokenizer: Tokenizer, params: SamplingParams, seed: int) -> _core.Sampler:
    """The core's sampler for one request."""
    core = {name: getattr(params, name) for name in specs(type(params)) if name not in _OURS}
    if params.samplers is not None:
        core["samplers"] = list(params.samplers)
    if params.dry_multiplier:
        core["dry_breakers"] = breaker_arrows(tokenizer, params.dry_sequence_breakers)
    return _core.Sampler(
        tokenizer.n_vocab,
        seed=seed,
        logit_bias=dict(params.logit_bias),
        eog_ids=sorted(tokenizer.eog_ids),
        **core,
    )


def process(processors: Sequence[LogitsProcessor], tokens: Tokens, row: Logits) -> Logits:
    """The logits (n_vocab) after the caller's functions: (tokens so far, logits) -> logits."""
    if not processors:
        return row
    result: Any = row.copy()
    for processor in processors:
        result = np.ascontiguousarray(processor(tokens, result), np.float32)
        if result.shape != row.shape:
            raise ParameterError(f"logits_processor must return shape {row.shape}, not {result.shape}")
        if not -np.inf < result.max() < np.inf:  # the largest is NaN where any is
            raise ParameterError(
                "logits_processor returned NaN, infinity, or -infinity for every token",
                "Logits must be finite, or -infinity for a banned token, and some token must be left.",
            )
    logits: Logits = result
    return logits


def draws(
    context: Context,
    sampler: _core.Sampler,
    n_max: int | None,
    *,
    n_top: int = -1,
    processors: Sequence[LogitsProcessor] = (),
    stop_when: StoppingCriterion | None = None,
) -> Generator[Draw, Sequence[int] | None, None]:
    """Sample from the last logits, hand the token out, evaluate it; n_max times or until the context is full.

    A token that ends generation is handed out like any other: the reader decides. Every draw is keyed by the
    position it fills, so it depends on neither batches nor cache hits. Tokens sent in are evaluated after it.
    """
    tokens, sample = context.tokens, sampler.sample
    row = context.last_row()
    n_prompt = context.n_tokens
    n_drawn = 0
    while n_drawn != n_max:
        n = context.n_tokens
        if n >= context.n_ctx:
            return
        logits = process(processors, tokens[:n], row)
        draw = sample(logits, tokens[:n], n, n_prompt=n_prompt, n_top_logprobs=n_top)
        if stop_when is not None and stop_when(tokens[:n], row):
            return
        sent = yield draw
        n_drawn += 1
        if n_drawn == n_max:
            return
        row = context.step(draw[0])
        if sent:
            context.eval(np.asarray(sent, np.int32))
            row = context.last_row()
