"""States: what a `Llama` holds, taken out and put back; and caches that keep several of them."""

from __future__ import annotations

import json
import zlib
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .errors import ParameterError
from .generation import common_prefix
from .prompts import token_ids

if TYPE_CHECKING:
    from .generation import Context, Logits, Tokens

_MAGIC = b"pyllamacpp state 1\n"
_AGAIN = "Save it again, with the same model and n_ctx."


@dataclass(frozen=True, slots=True, eq=False)
class LlamaState:
    """The tokens a `Llama` holds, their keys and values, the logits it has, its seed. Immutable.

    model: of which model it is. seed: the Llama's own; None: a random one each time. input_ids (n) int32.
    scores (n or 1, n_vocab) float32. pages: uint8, in proportion to n. kv_types: what keys and values are.
    """

    model: str
    n_ctx: int
    seed: int | None
    input_ids: Tokens
    scores: Logits
    pages: npt.NDArray[np.uint8]
    kv_types: tuple[str, str] = ("f16", "f16")

    @property
    def n_tokens(self) -> int:
        return len(self.input_ids)

    @property
    def llama_state_size(self) -> int:
        """Bytes of the keys and values."""
        return self.pages.nbytes

    @property
    def llama_state(self) -> bytes:
        """The keys and values."""
        return self.pages.tobytes()

    def to_bytes(self) -> bytes:
        """For a file; `from_bytes` reads it."""
        fields = {"model": self.model, "n_ctx": self.n_ctx, "seed": self.seed, "kv_types": self.kv_types}
        sizes = {"n_tokens": self.n_tokens, "scores": self.scores.shape, "pages": self.pages.nbytes}
        head = json.dumps({**fields, **sizes}).encode() + b"\n"
        arrays = [self.input_ids.astype("<i4"), self.scores.astype("<f4"), self.pages]
        data = b"".join([_MAGIC, head, *(array.tobytes() for array in arrays)])
        return data + zlib.crc32(data).to_bytes(4, "little")

    @classmethod
    def from_bytes(cls, data: bytes) -> LlamaState:
        """Error: ParameterError for bytes that are no state, are cut short or damaged."""
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise ParameterError(f"a saved state is bytes, not {type(data).__name__}")
        view = memoryview(data).cast("B")
        start = bytes(view[: len(_MAGIC)])
        if start != _MAGIC:
            short = _MAGIC.startswith(start)
            raise _damaged("cut short") if short else ParameterError("these bytes are no saved state")
        if zlib.crc32(view[:-4]) != int.from_bytes(view[-4:], "little"):
            raise _damaged("cut short or damaged")
        return cls._parse(view[len(_MAGIC) : -4])

    @classmethod
    def _parse(cls, view: memoryview) -> LlamaState:
        try:
            head, _, rest = bytes(view).partition(b"\n")
            fields = json.loads(head)
            n_tokens, (n_rows, n_vocab) = fields["n_tokens"], fields["scores"]
            if min(n_tokens, n_rows, n_vocab) < 0:
                raise ValueError
            ends = np.cumsum([4 * n_tokens, 4 * n_rows * n_vocab, fields["pages"]]).tolist()
            if ends[-1] != len(rest):
                raise ValueError
            ids = np.frombuffer(rest, "<i4", n_tokens)
            scores = np.frombuffer(rest, "<f4", n_rows * n_vocab, ends[0]).reshape(n_rows, n_vocab)
            pages = np.frombuffer(rest, np.uint8, fields["pages"], ends[1])
            type_k, type_v = map(str, fields.get("kv_types", ("f16", "f16")))  # which were all there once was
            return cls(fields["model"], fields["n_ctx"], fields["seed"], ids, scores, pages, (type_k, type_v))
        except (
            ValueError,
            KeyError,
            TypeError,
            OverflowError,
            RecursionError,
        ):  # not written by to_bytes, for all its checksum
            raise _damaged("damaged") from None

    def __reduce__(self) -> Any:
        return LlamaState.from_bytes, (self.to_bytes(),)


def _damaged(how: str) -> ParameterError:
    return ParameterError(f"the saved state is {how}", _AGAIN)


def save(context: Context, model: str, seed: int | None) -> LlamaState:
    """The state of the context. model: its identity."""
    rows = context.all_rows().copy()
    tokens = context.tokens[: context.n_tokens].copy()
    return LlamaState(model, context.n_ctx, seed, tokens, rows, context.session.save(), context.kv_types)


def load(context: Context, model: str, state: LlamaState) -> None:
    """Hold again what the state holds. Error: ParameterError, before anything is changed."""
    if not isinstance(state, LlamaState):
        raise ParameterError(
            f"a state is what save_state() returns, not {type(state).__name__}",
            "Bytes of a file become one with LlamaState.from_bytes(...).",
        )
    if state.model != model:
        raise ParameterError("the state is of another model, or of one opened with other overrides", _AGAIN)
    if state.n_ctx != context.n_ctx:
        raise ParameterError(
            f"the state is of a context of {state.n_ctx} tokens, this one has {context.n_ctx}",
            f"Open the model with n_ctx={state.n_ctx}.",
        )
    if state.kv_types != context.kv_types:
        raise ParameterError(
            f"the state's keys and values are {' and '.join(state.kv_types)}, "
            f"here they are kept as {' and '.join(context.kv_types)}",
            "Open the model with type_k={!r}, type_v={!r}.".format(*state.kv_types),
        )
    token_ids(state.input_ids, context.n_vocab)
    if state.scores.shape[1] != context.n_vocab or not np.isfinite(state.scores).all():
        raise _damaged("damaged")
    context.session.check_saved(state.n_tokens, state.pages)
    context.restore(state.input_ids, state.scores, state.pages)


class BaseLlamaCache(ABC):
    """Keeps states by their tokens. Yours may be any object with these two methods."""

    def __init__(self, capacity_bytes: int = 2 << 30) -> None:
        self.capacity_bytes = capacity_bytes

    @abstractmethod
    def __getitem__(self, key: Sequence[int]) -> LlamaState:
        """The state whose tokens have the longest common beginning with `key`. Error: KeyError for none."""

    @abstractmethod
    def __setitem__(self, key: Sequence[int], value: LlamaState) -> None:
        """Keep a state under its tokens."""


class LlamaRAMCache(BaseLlamaCache):
    """States in memory; the least recently used leave when they take more than capacity_bytes together."""

    def __init__(self, capacity_bytes: int = 2 << 30) -> None:
        super().__init__(capacity_bytes)
        self.cache_state: OrderedDict[tuple[int, ...], LlamaState] = OrderedDict()

    @property
    def cache_size(self) -> int:
        """Bytes of the states kept."""
        return sum(_size(state) for state in self.cache_state.values())

    def _find(self, key: Sequence[int]) -> tuple[int, ...] | None:
        wanted = np.asarray(key, np.int32)
        shared = {kept: common_prefix(state.input_ids, wanted) for kept, state in self.cache_state.items()}
        best = max(shared, key=shared.__getitem__, default=None)
        return best if best is not None and shared[best] > 0 else None

    def __contains__(self, key: Sequence[int]) -> bool:
        return self._find(key) is not None

    def __getitem__(self, key: Sequence[int]) -> LlamaState:
        found = self._find(key)
        if found is None:
            raise KeyError("no state has a common beginning with these tokens")
        self.cache_state.move_to_end(found)
        return self.cache_state[found]

    def __setitem__(self, key: Sequence[int], value: LlamaState) -> None:
        tokens = tuple(map(int, key))
        for kept in [k for k in self.cache_state if tokens[: len(k)] == k]:
            del self.cache_state[kept]  # the longer one serves wherever it did
        self.cache_state[tokens] = value
        while self.cache_size > self.capacity_bytes:
            self.cache_state.popitem(last=False)


def checked_cache(cache: Any) -> BaseLlamaCache | None:
    """What set_cache was given. Error: ParameterError where it is no cache."""
    fits = hasattr(cache, "__getitem__") and hasattr(cache, "__setitem__")
    if cache is not None and (not fits or type(cache) in (dict, list)):  # a list is no key of these
        raise ParameterError(
            f"a cache finds states by lists of tokens; {cache!r} does not", "Take LlamaRAMCache()."
        )
    return cache  # type: ignore[no-any-return]  # any object with the two methods


def _size(state: LlamaState) -> int:
    return state.pages.nbytes + state.scores.nbytes + state.input_ids.nbytes


@dataclass(frozen=True, slots=True)
class Cached:
    """A caller's cache and what states of this Llama are known by."""

    cache: BaseLlamaCache
    model: str
    seed: int | None

    def recall(self, context: Context, prompt: Tokens) -> None:
        """Hold the cache's state for the prompt, if it spares more work than the tokens held."""
        try:
            state = self.cache[prompt.tolist()]
        except KeyError:
            return
        known = (self.model, context.n_ctx, context.kv_types)
        if (state.model, state.n_ctx, state.kv_types) != known:  # the cache serves others too
            return
        held = context.tokens[: context.n_tokens]
        if common_prefix(state.input_ids, prompt) > common_prefix(held, prompt):
            load(context, self.model, state)

    def keep(self, context: Context) -> None:
        """Give the cache what the context holds now."""
        self.cache[context.tokens[: context.n_tokens].tolist()] = save(context, self.model, self.seed)
