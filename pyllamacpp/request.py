"""One request of a `Llama`: checked beforehand, run under its turn, told as a whole or as a stream."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from .completion import Answer, Piece, PromptScorer, Scored, Shape, usage
from .errors import ParameterError
from .generation import (
    Context,
    Draw,
    Logits,
    LogitsProcessor,
    StoppingCriterion,
    Tokens,
    Turn,
    draws,
    make_sampler,
)

if TYPE_CHECKING:
    from .params import SamplingParams
    from .states import Cached
    from .text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Request:
    """All that can be refused has been. prompt (n) int32; at least one token fits after it.

    params.logprobs: likeliest tokens to report beside the chosen one; None: no log-probabilities.
    echo: the prompt's text where it belongs to the result. offset: of the answer in the text, in characters.
    spelled: control tokens whose bytes are part of the text.
    """

    prompt: Tokens
    params: SamplingParams
    seed: int
    echo: str | None = None
    offset: int = 0
    processors: Sequence[LogitsProcessor] = ()
    criteria: Sequence[StoppingCriterion] = ()
    spelled: Mapping[int, bytes] = field(default_factory=dict)


class Run:
    """A request in progress. finish_reason and usage are final once the pieces are exhausted."""

    def __init__(
        self, request: Request, context: Context, tokenizer: Tokenizer, cached: Cached | None = None
    ) -> None:
        self._request = request
        self._cached = cached
        self._context = context
        self._tokenizer = tokenizer
        self._sampler = make_sampler(tokenizer, request.params, request.seed)
        self._n_cached = 0
        self._stopped = False
        self._answer = Answer(
            tokenizer,
            request.params.stop,
            scored=request.params.logprobs is not None,
            offset=request.offset,
            spelled=request.spelled,
        )

    @property
    def finish_reason(self) -> str:
        return "stop" if self._stopped else self._answer.finish_reason

    @property
    def usage(self) -> dict[str, Any]:
        return usage(len(self._request.prompt), self._n_cached, self._answer.n_tokens)

    def pieces(self) -> Generator[Piece, None, None]:
        """The echo where asked for, then the answer. The caller has the turn."""
        request, context = self._request, self._context
        params = request.params
        scored = self._prefill()
        if request.echo is not None:
            yield Piece(request.echo, scored)
        room = context.n_ctx - len(request.prompt)
        loop = draws(
            context,
            self._sampler,
            room if params.max_tokens is None else min(params.max_tokens, room),
            n_top=-1 if params.logprobs is None else params.logprobs,
            processors=request.processors,
            stop_when=any_of(request.criteria, self._note_stop),
        )
        with closing(loop):
            yield from self._answer.pieces(loop)
        if self._cached is not None:
            self._cached.keep(context)

    def _prefill(self) -> list[Scored]:
        """Evaluate what the prompt does not share with the tokens held; all of it if they are scored."""
        request, context = self._request, self._context
        n_top = request.params.logprobs
        if request.echo is None or n_top is None:
            if self._cached is not None:
                self._cached.recall(context, request.prompt)
            self._n_cached = context.resume(request.prompt)
            context.eval(request.prompt[self._n_cached :])
            return []
        scorer = PromptScorer(self._tokenizer, request.prompt, n_top)
        context.truncate(0)
        context.eval(request.prompt, scorer)
        return scorer.scored()

    def _note_stop(self) -> None:
        self._stopped = True


def whole(run: Run, turn: Turn, shape: Shape) -> dict[str, Any]:
    """The complete result."""
    with turn.lock(), turn:
        pieces = list(run.pieces())
    piece = Piece("".join(p.text for p in pieces), [scored for p in pieces for scored in p.scored])
    return shape.whole(piece, run.finish_reason, run.usage)


def stream(run: Run, turn: Turn, shape: Shape) -> Iterator[dict[str, Any]]:
    """The result in chunks. The turn is taken with the first and given back before the last."""
    with turn.lock(), turn, closing(run.pieces()) as pieces:
        for chunk in chain(shape.opening(), map(shape.delta, pieces)):
            turn.pause()
            yield chunk
            turn.resume()
    yield shape.closing(run.finish_reason)


def tokens_of(loop: Generator[Draw, Any, None], turn: Turn) -> Generator[int, Sequence[int] | None, None]:
    """The tokens alone, handed out like a stream's pieces; what is sent goes to the loop."""
    sent: Sequence[int] | None = None
    with suppress(StopIteration):
        while True:
            token = loop.send(sent)[0]
            turn.pause()
            sent = yield token
            turn.resume()


def callables(name: str, given: Any) -> tuple[Any, ...]:
    """One function or several, as llama-cpp-python's lists of them."""
    several = () if given is None else given if isinstance(given, Sequence) else (given,)
    if not all(callable(one) for one in several):
        raise ParameterError(f"{name} must be a function or a list of functions, not {given!r}")
    return tuple(several)


def any_of(
    criteria: Sequence[StoppingCriterion], note: Callable[[], None] | None = None
) -> StoppingCriterion | None:
    """Whether one of the criteria holds; note is called then. None where there are none to ask."""
    if not criteria:
        return None

    def holds(tokens: Tokens, row: Logits) -> bool:
        if not any(criterion(tokens, row) for criterion in criteria):
            return False
        if note is not None:
            note()
        return True

    return holds
