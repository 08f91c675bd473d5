"""`Llama`: one model and one sequence, with llama-cpp-python's names, parameters and result dictionaries."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from . import _core, compat, states
from .completion import ChatShape, CompletionShape, Shape, as_openai, log_softmax
from .embedding import Embedder, pooling_of, response, texts_of
from .errors import ParameterError
from .generation import (
    Context,
    Logits,
    LogitsProcessor,
    StoppingCriterion,
    Tokens,
    Turn,
    common_prefix,
    draws,
    make_sampler,
    process,
)
from .opening import Parts, load_line, locate, open_model, progress
from .params import CHAT_DEFAULTS, LoadParams, SamplingParams, random_seed, specs
from .prompts import completion_prompt, token_ids
from .request import Request, Run, any_of, callables, tokens_of
from .request import stream as stream_of
from .request import whole as whole_of
from .text.chat import ChatTemplate, missing_template, template_variables
from .text.extent import too_long
from .text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

Processors = LogitsProcessor | Sequence[LogitsProcessor] | None
Texts = str | Sequence[int] | Sequence[str] | Sequence[Sequence[int]]
Criteria = StoppingCriterion | Sequence[StoppingCriterion] | None


class Llama:
    """A GGUF model, ready to complete text.

    Requests are served one at a time: a second thread waits, also for a stream until it is read to its end
    or closed. Consecutive requests reuse the KV pages of their common beginning, which changes no result.

    docs/llama-cpp-python.md lists what differs from llama-cpp-python. What is not supported is an error,
    never ignored.

    Attributes: model_path, verbose, metadata (dict[str, str], no arrays), cache, spm_infill, last_seed (of
    the latest request), last_run (that request: its usage and finish_reason).
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
        chat_format: str | None = None,
        kv_overrides: Mapping[str, bool | int | float | str] | None = None,
        pooling_type: int | None = None,
        spm_infill: bool = False,
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
        chat_format: a format of text/chat_formats.py by its name, instead of the file's template.
        kv_overrides: metadata to take instead of the file's.  pooling_type: of embed, LLAMA_POOLING_TYPE_*.
        spm_infill: with a suffix, write it before the prefix, as some models were trained.
        **llama_cpp: type_k, type_v: what keys and values are kept as, by name or GGML_TYPE_*.
        rope_*, yarn_*: instead of the file's.  Others of llama-cpp-python, if they ask for nothing special.

        Errors: ParameterError, ModelNotFoundError, ModelFileError and its kinds, MemoryLimitError.
        """
        more = compat.split("Llama", llama_cpp, compat.LOADING, compat.CONSTRUCTOR)
        load = LoadParams(
            n_ctx=n_ctx, n_threads=n_threads, n_threads_batch=n_threads_batch, n_batch=n_batch, pre=pre,
            chat_template=chat_template, chat_format=chat_format, pooling_type=pooling_type,
            kv_overrides={} if kv_overrides is None else kv_overrides, **more,
        )  # fmt: skip
        self._defaults = SamplingParams(seed=seed, penalty_last_n=last_n_tokens_size)
        self.model_path = locate(model_path, verbose)
        self.verbose = verbose
        self.spm_infill = spm_infill
        self.last_seed: int | None = None
        self.last_run: Run | None = None
        self.cache: states.BaseLlamaCache | None = None
        self._load_params = load
        self._turn = Turn()
        began = time.perf_counter()
        opened = open_model(self.model_path, load, vocab_only=vocab_only)
        self.metadata = opened.metadata
        self._identity = opened.identity
        self._parts = Parts(opened, load, keep_all=logits_all)
        if verbose:
            print(load_line(self.model_path, opened, time.perf_counter() - began), file=sys.stderr)

    @classmethod
    def from_pretrained(
        cls,
        repo_id: str,
        filename: str | None,
        additional_files: Sequence[str] | None = None,
        local_dir: str | os.PathLike[str] | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        revision: str | None = None,
        token: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Open a file of a Hugging Face repository, fetched into the cache where it is not there yet.

        filename: exact, or a glob that matches one model; its shards come along.  additional_files: names or
        globs of more to fetch.  local_dir: put the files there.  cache_dir: instead of the Hub's own cache.
        revision: branch, tag or commit.  token: of an account, for what is not public; HF_TOKEN else.
        **kwargs: as for `Llama`.

        Errors: as for `Llama`; ModelNotFoundError where nothing or more than one model matches.
        """
        from .hub import from_repo

        links = {key: kwargs.pop(key) for key in compat.FROM_PRETRAINED if key in kwargs}
        compat.check_inert("Llama.from_pretrained", links, compat.FROM_PRETRAINED)
        # Values out of range are found now, not after gigabytes.
        LoadParams(**{name: kwargs[name] for name in specs(LoadParams) if kwargs.get(name) is not None})
        path = from_repo(
            repo_id,
            filename,
            additional_files=additional_files or (),
            local_dir=local_dir,
            cache_dir=cache_dir,
            revision=revision,
            token=token,
            progress=progress(kwargs.get("verbose", True)),
        )
        return cls(path, **kwargs)

    longest_token_prefix = staticmethod(common_prefix)
    logits_to_logprobs = staticmethod(log_softmax)

    # What the model is

    @property
    def _tokenizer(self) -> Tokenizer:
        return self._parts.tokenizer

    @property
    def _model(self) -> _core.Model:
        return self._parts.model

    @property
    def _context(self) -> Context:
        return self._parts.context

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
        chat = self._parts.chat
        return None if chat is None else chat.template

    @property
    def chat_format(self) -> str | None:
        """The name given for it, if one was."""
        return self._load_params.chat_format

    @property
    def n_batch(self) -> int:
        """Prompt tokens evaluated at a time."""
        return self._load_params.n_batch

    @property
    def n_threads(self) -> int:
        """Threads that compute."""
        return self._model.n_threads

    @property
    def last_n_tokens_size(self) -> int:
        """Tokens the penalties look back at."""
        return self._defaults.penalty_last_n

    def pooling_type(self) -> int:
        """How `embed` pools, as LLAMA_POOLING_TYPE_*: as given, else as the file says."""
        return int(pooling_of(self._load_params.pooling_type, self._parts.pooling_in_file))

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
        return token_ids(tokens, self.n_vocab())

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
    def input_ids(self) -> Tokens:
        """The tokens held (n_tokens), int32, read-only."""
        held: Tokens = self._context.tokens[: self.n_tokens]
        return held

    @property
    def eval_tokens(self) -> list[int]:
        """The tokens held."""
        result: list[int] = self.input_ids.tolist()
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
                loop = draws(context, sampler, None, processors=processors, stop_when=any_of(criteria))
                yield from tokens_of(loop, self._turn)

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

        suffix: fill in what stands between prompt and suffix; neither is read as control tokens then.
        max_tokens: None, 0 or -1: to the end of the context. logprobs: how many likeliest tokens to report.
        **more: other fields of SamplingParams (typical_p, dry_multiplier, samplers, ...).
        Returns: the `text_completion` dictionary; with stream=True an iterator of its chunks.
        Errors: ParameterError; ContextOverflowError where the prompt leaves no room for a token.
        """
        params = self._sampling(
            "create_completion", more, compat.COMPLETION,
            max_tokens=max_tokens, temperature=temperature, top_p=top_p, min_p=min_p, top_k=top_k,
            frequency_penalty=frequency_penalty, presence_penalty=presence_penalty,
            repeat_penalty=repeat_penalty, seed=seed,
            stop=stop, logprobs=logprobs, logit_bias=logit_bias,
        )  # fmt: skip
        context, tokenizer = self._context, self._tokenizer
        ids = completion_prompt(tokenizer, prompt, suffix, context.n_ctx, spm_infill=self.spm_infill)
        text = prompt if isinstance(prompt, str) else self.detokenize(ids).decode("utf-8", "replace")
        request = Request(
            ids, params, self._seed(params), echo=text if echo else None, offset=len(text),
            processors=callables("logits_processor", logits_processor),
            criteria=callables("stopping_criteria", stopping_criteria),
        )  # fmt: skip
        shape = CompletionShape(tokenizer, model or self.model_path, scored=logprobs is not None)
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
        chat_template_kwargs: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Any:
        """Answer a conversation, written with the chat template; its text is never read as control tokens.

        chat_template_kwargs: variables of the template (enable_thinking, …); **more: of SamplingParams.
        Returns: the `chat.completion` dictionary; with stream=True an iterator of `chat.completion.chunk`s.
        Errors: ChatTemplateError where no template is there or it refuses; those of create_completion.
        """
        if top_logprobs is not None and not logprobs:
            raise ParameterError("top_logprobs needs logprobs=True")
        context, tokenizer, chat = self._context, self._tokenizer, self._parts.chat
        if chat is None:
            raise missing_template()
        params = self._sampling(
            "create_chat_completion", more, compat.CHAT,
            max_tokens=max_tokens, temperature=temperature, top_p=top_p, min_p=min_p, top_k=top_k,
            frequency_penalty=frequency_penalty, presence_penalty=presence_penalty,
            repeat_penalty=repeat_penalty, seed=seed,
            stop=chat.stops(stop), logprobs=(top_logprobs or 0) if logprobs else None, logit_bias=logit_bias,
        )  # fmt: skip
        variables = template_variables(chat_template_kwargs)
        ids = self._ids(chat.template.encode(tokenizer, messages, n_ctx=context.n_ctx, **variables))
        processors = callables("logits_processor", logits_processor)
        thoughts = chat.template.reasoning
        spelled = thoughts.marker_bytes(tokenizer) if thoughts else {}
        request = Request(ids, params, self._seed(params), processors=processors, spelled=spelled)
        shape = ChatShape(tokenizer, model or self.model_path, scored=bool(logprobs))
        return self._serve(request, shape, stream=stream)

    def create_chat_completion_openai_v1(self, *args: Any, **kwargs: Any) -> Any:
        """`create_chat_completion` with the openai package's objects for results."""
        return as_openai(self.create_chat_completion(*args, **kwargs))

    def _serve(self, request: Request, shape: Shape, *, stream: bool) -> Any:
        context = self._context
        if len(request.prompt) >= context.n_ctx:
            raise too_long(len(request.prompt), context.n_ctx)
        cached = (
            None if self.cache is None else states.Cached(self.cache, self._identity, self._defaults.seed)
        )
        run = self.last_run = Run(request, context, self._tokenizer, cached)
        return stream_of(run, self._turn, shape) if stream else whole_of(run, self._turn, shape)

    # Embeddings

    def embed(
        self,
        input: Texts,
        normalize: bool = False,
        truncate: bool = False,
        return_count: bool = False,
    ) -> Any:
        """Vectors of texts, or of lists of tokens; the tokens held stay as they are.

        normalize: to length 1. truncate: take the beginning of what is longer than the context.
        Returns: for one text its vector, without pooling one a token; for several a list of those; with
        return_count a tuple of that and the number of tokens.
        Errors: ParameterError; ContextOverflowError.
        """
        model, session, texts = self._model, self._parts.session(self._context.n_ctx), texts_of(input)
        pooling = pooling_of(self._load_params.pooling_type, self._parts.pooling_in_file)
        embedder = Embedder(model, session, self._tokenizer, pooling, n_batch=self.n_batch)
        inputs = [embedder.tokens(text, truncate=truncate) for text in texts[0]]
        vectors = [embedder.embed(tokens, normalize=normalize).tolist() for tokens in inputs]
        result = vectors[0] if texts[1] else vectors
        return (result, sum(map(len, inputs))) if return_count else result

    def create_embedding(self, input: Texts, model: str | None = None) -> dict[str, Any]:
        """`embed` as the embeddings API answers. Errors: as `embed`."""
        vectors, n_tokens = self.embed(input, return_count=True)
        return response([vectors] if texts_of(input)[1] else vectors, model or self.model_path, n_tokens)

    # States

    def save_state(self) -> states.LlamaState:
        """What is held now: tokens, keys and values, logits, seed. It can be pickled, or written as bytes."""
        with self._turn.lock(), self._turn:
            return states.save(self._context, self._identity, self._defaults.seed)

    def load_state(self, state: states.LlamaState) -> None:
        """Go on from a state. Error: ParameterError: of another model, n_ctx or KV types, or no state."""
        with self._turn.lock(), self._turn:
            states.load(self._context, self._identity, state)
        self.set_seed(state.seed)

    def set_cache(self, cache: states.BaseLlamaCache | None) -> None:
        """Keep the states of finished requests in `cache`, and begin later ones from them. It changes no
        answer. Without one (None) only what the latest request left is reused.
        """
        self.cache = states.checked_cache(cache)

    # Lifetime

    def close(self) -> None:
        """Give the memory back; later calls are errors. A request of another thread is waited for."""
        with self._reading():
            self._parts.close()

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
            f"Llama.{name} of llama-cpp-python has no counterpart: {compat.ATTRIBUTES[name]}"
            if name in compat.ATTRIBUTES
            else f"{type(self).__name__!r} object has no attribute {name!r}"
        )


def _id_or_minus_one(token: int | None) -> int:
    return -1 if token is None else token
