"""From a model's name and the parameters of loading to what a `Llama` is made of."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import _core
from .errors import ParameterError
from .generation import Context
from .params import LoadParams, specs
from .text.chat_formats import ChatFormat, choose_format
from .text.tokenizer import Tokenizer

_ROPE_TYPES = ("none", "linear", "yarn", "longrope")
_YARN = {  # parameter -> metadata key below the architecture's name
    "yarn_attn_factor": "rope.scaling.attn_factor",
    "yarn_beta_fast": "rope.scaling.yarn_beta_fast",
    "yarn_beta_slow": "rope.scaling.yarn_beta_slow",
    "yarn_orig_ctx": "rope.scaling.original_context_length",
}
_SAMPLES = 16  # pieces of a file that tell models apart
_SAMPLE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Opened:
    """A model file, read. model and n_ctx are None where the vocabulary alone was asked for.

    identity: the same for the same files opened with the same overrides, and as good as surely for no others.
    """

    metadata: Mapping[str, str]  # without arrays
    pooling_type: Any  # the file's, unchecked; 0 where it says none
    tokenizer: Tokenizer
    chat: ChatFormat | None
    model: _core.Model | None
    n_ctx: int | None
    identity: str


class Parts:
    """What a `Llama` works with, until it is closed. Asking for what is not there is a ParameterError."""

    def __init__(self, opened: Opened, load: LoadParams, *, keep_all: bool) -> None:
        """keep_all: the context keeps the logits of every token."""
        self.chat = opened.chat
        self.pooling_in_file = opened.pooling_type
        self._tokenizer: Tokenizer | None = opened.tokenizer
        self._model = opened.model
        self._load = load
        self._context: Context | None = None
        if opened.n_ctx is not None:
            session = self.session(opened.n_ctx)
            self._context = Context(session, opened.tokenizer.n_vocab, load.n_batch, keep_all=keep_all)

    @property
    def tokenizer(self) -> Tokenizer:
        if self._tokenizer is None:
            raise ParameterError("this Llama is closed", "Open the model again.")
        return self._tokenizer

    @property
    def model(self) -> _core.Model:
        if self._model is None:
            _ = self.tokenizer  # closed: the other error
            raise ParameterError(
                "only the vocabulary was opened (vocab_only=True)", "Open the model without vocab_only."
            )
        return self._model

    @property
    def context(self) -> Context:
        _ = self.model
        assert self._context is not None
        return self._context

    def session(self, n_ctx: int) -> _core.Session:
        """A new one of the model."""
        return _core.Session(self.model, n_ctx, type_k=self._load.type_k, type_v=self._load.type_v)

    def close(self) -> None:
        if self._context is not None:
            self._context.close()
        self._context = self._tokenizer = self.chat = self._model = None


def locate(model_path: str | os.PathLike[str], verbose: bool) -> str:
    """The file of this machine that a path, an alias or a model of the hub means; fetched if it must be."""
    path = os.fspath(model_path) if isinstance(model_path, os.PathLike) else model_path
    if not isinstance(path, str):
        raise ParameterError(f"model_path must be a str or a path, not {type(model_path).__name__}")
    if os.path.isfile(path):
        return path
    from .hub import resolve

    return str(resolve(path, progress=progress(verbose)))


def progress(verbose: bool) -> bool | None:
    """Silent when not verbose; otherwise the hub sees for itself whether somebody watches."""
    return None if verbose else False


def open_model(path: str, load: LoadParams, *, vocab_only: bool) -> Opened:
    """Errors: ModelFileError and its kinds, MemoryLimitError, ParameterError for overrides without effect."""
    file = _core.GgufFile(path)
    overrides = _overrides(file, load)
    if overrides:
        file = _core.GgufFile(path, overrides=overrides)
    metadata = _Watched(file.metadata)
    weights: Future[_core.Model] | None = None
    n_ctx = None
    with ThreadPoolExecutor(1) as beside:  # weights are read and repacked while the tokenizer is built
        try:
            if not vocab_only:
                n_ctx = _core.plan_context(file, load.n_ctx, type_k=load.type_k, type_v=load.type_v)["n_ctx"]
                weights = beside.submit(_core.Model, file, n_threads=load.n_threads or 0)
            tokenizer = Tokenizer.from_metadata(metadata, pre=load.pre)
            chat = choose_format(metadata, tokenizer, name=load.chat_format, template=load.chat_template)
            model = None if weights is None else weights.result()
        except BaseException:  # Ctrl-C, above all, does not wait for gigabytes
            file.stop_reading()
            raise
    pooling_type = metadata.get(f"{metadata.get('general.architecture')}.pooling_type", 0)
    if model is not None:
        _refuse_unread(set(file.unasked_overrides) - metadata.asked)
    return Opened(_scalars(metadata), pooling_type, tokenizer, chat, model, n_ctx, _identity(file, overrides))


def load_line(path: str, opened: Opened, seconds: float) -> str:
    """What a verbose `Llama` tells of a model it has opened."""
    name, model = Path(path).name, opened.model
    if model is None:
        return f"pyllamacpp: {name}: a vocabulary of {opened.tokenizer.n_vocab} tokens, {seconds:.2f} s"
    return (
        f"pyllamacpp: {name}: {model.arch}, {model.weight_bytes >> 20} MiB of weights, "
        f"context {opened.n_ctx} (trained {model.n_ctx_train}), {model.n_threads} threads, "
        f"{model.isa}, {seconds:.2f} s"
    )


def _scalars(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Metadata as llama-cpp-python has it: strings, without arrays; floats as short as a float32 allows."""
    return {key: _as_text(value) for key, value in metadata.items() if isinstance(value, (str, int, float))}


def _as_text(value: str | bool | int | float) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(np.float32(value)) if isinstance(value, float) else str(value)


def _overrides(file: _core.GgufFile, load: LoadParams) -> dict[str, bool | int | float | str]:
    """All that is to stand in place of the file's metadata. kv_overrides are the last word."""
    asked = [
        name for name in specs(LoadParams)
        if name.startswith(("rope_", "yarn_")) and getattr(load, name) is not None
    ]  # fmt: skip
    below = _rope(file.metadata, load, asked) if asked else {}
    arch = file.metadata.get("general.architecture") if asked else None
    return {**{f"{arch}.{key}": value for key, value in below.items()}, **load.kv_overrides}


def _rope(metadata: Mapping[str, Any], load: LoadParams, asked: list[str]) -> dict[str, int | float | str]:
    """Keys below the architecture's name. Error: ParameterError for a parameter that would change nothing."""
    keys: dict[str, int | float | str] = {}
    if load.rope_freq_base is not None:
        keys["rope.freq_base"] = load.rope_freq_base
    kind = metadata.get(f"{metadata.get('general.architecture')}.rope.scaling.type", "none")
    if load.rope_scaling_type is not None:
        kind = keys["rope.scaling.type"] = _ROPE_TYPES[load.rope_scaling_type]
    if load.rope_freq_scale is not None:
        if kind == "none" and load.rope_scaling_type is None:
            kind = keys["rope.scaling.type"] = "linear"
        if kind not in ("linear", "yarn"):
            raise _no_effect("rope_freq_scale", load.rope_freq_scale, kind)
        keys["rope.scaling.factor"] = 1 / load.rope_freq_scale
    for name in asked:
        if name in _YARN:
            if kind != "yarn":
                raise _no_effect(name, getattr(load, name), kind)
            keys[_YARN[name]] = getattr(load, name)
    return keys


def _no_effect(name: str, value: float, kind: object) -> ParameterError:
    return ParameterError(
        f"{name}={value} has no effect: the rope scaling is {kind!r}",
        "Leave it out, or choose with rope_scaling_type (1 linear, 2 yarn).",
    )


class _Watched(dict[str, Any]):
    """Metadata that notes the keys it is asked for."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        super().__init__(metadata)
        self.asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)


def _refuse_unread(keys: set[str]) -> None:
    """keys: of overrides, not in the file and not asked for: slips of the pen, not wishes to ignore."""
    for key in sorted(keys):
        if not key.startswith("general."):  # said about the model, not to the engine
            raise ParameterError(
                f"kv_overrides: nothing reads {key!r}, and the file does not have it",
                "Check the spelling; pyllamacpp info MODEL lists the file's keys.",
            )


def _identity(file: _core.GgufFile, overrides: Mapping[str, Any]) -> str:
    """From sizes, overrides and samples all over the files, which are in memory still: just read."""
    checksum = zlib.crc32(repr(sorted(overrides.items())).encode())
    sizes = []
    for shard in file.shards:
        with open(shard, "rb") as data:
            size = os.fstat(data.fileno()).st_size
            for i in range(_SAMPLES):
                data.seek(i * max(0, size - _SAMPLE_BYTES) // max(1, _SAMPLES - 1))
                checksum = zlib.crc32(data.read(_SAMPLE_BYTES), checksum)
        sizes.append(size)
    return f"{'+'.join(map(str, sizes))}-{checksum:08x}"
