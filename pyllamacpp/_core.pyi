"""The native core. Every error is a class of `pyllamacpp.errors`."""

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, Literal, TypedDict, final

import numpy as np
import numpy.typing as npt

_Int32 = npt.NDArray[np.int32]
_Float32 = npt.NDArray[np.float32]

# GGUF files

@final
class TensorInfo:
    @property
    def name(self) -> str: ...
    @property
    def format(self) -> str: ...  # the GGUF type's name, e.g. "Q4_K"
    @property
    def shape(self) -> tuple[int, ...]: ...  # GGUF order: columns (contiguous) first
    @property
    def n_bytes(self) -> int: ...
    @property
    def shard(self) -> int: ...  # index into GgufFile.shards

@final
class GgufFile:
    """A validated GGUF model; any shard opens the set."""

    def __init__(
        self,
        path: str | bytes | PathLike[str],
        *,
        overrides: Mapping[str, bool | int | float | str] = ...,  # in place of the file's metadata
    ) -> None: ...
    @property
    def unasked_overrides(
        self,
    ) -> list[str]: ...  # those of keys the file lacks and the core has not looked for
    @property
    def path(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def shards(self) -> list[str]: ...
    @property
    def metadata(self) -> dict[str, Any]: ...  # arrays as list[str] or numpy arrays
    @property
    def tensors(self) -> list[TensorInfo]: ...
    def stop_reading(self) -> None: ...  # every later read is an error, in other threads too
    def tensor(self, name: str) -> npt.NDArray[np.uint8]: ...  # (n_bytes,), a copy

def spm_merges(tokens: list[str], scores: npt.ArrayLike, types: npt.ArrayLike) -> list[tuple[str, str]]: ...

# Models

class Work(TypedDict):
    bytes: int  # of weights
    int8_macs: int
    float_macs: int

@final
class Model:
    """Weights, repacked and immutable. n_threads 0: chosen; isa "": the best this CPU has."""

    def __init__(
        self, file: GgufFile, *, n_threads: int = 0, isa: str = "", profile: bool = False
    ) -> None: ...
    def take_profile(self) -> dict[str, float]: ...  # seconds by class of operation since the last call
    @property
    def layers_work(self) -> Work: ...  # of one token through all layers
    @property
    def head_work(self) -> Work: ...  # of one row of logits
    def kv_bytes_read(  # by a token that sees n_keys
        self, n_keys: int, *, type_k: str = ..., type_v: str = ...
    ) -> int: ...
    @property
    def arch(self) -> str: ...
    @property
    def n_vocab(self) -> int: ...
    @property
    def n_embd(self) -> int: ...
    @property
    def n_layer(self) -> int: ...
    @property
    def n_head(self) -> int: ...
    @property
    def n_head_kv(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def n_ff(self) -> int: ...
    @property
    def n_ctx_train(self) -> int: ...
    @property
    def isa(self) -> str: ...
    @property
    def n_threads(self) -> int: ...
    @property
    def weight_bytes(self) -> int: ...
    def kv_bytes_per_token(self, *, type_k: str = ..., type_v: str = ...) -> int: ...

@final
class Session:
    """One sequence: KV pages and a position."""

    def __init__(self, model: Model, n_ctx: int, *, type_k: str = ..., type_v: str = ...) -> None: ...
    @property
    def n_ctx(self) -> int: ...
    @property
    def kv_types(self) -> tuple[str, str]: ...  # of keys, of values
    @property
    def n_tokens(self) -> int: ...
    @property
    def kv_bytes(self) -> int: ...
    def eval(
        self, tokens: _Int32, logits: Literal["none", "last", "all"] = "last"
    ) -> _Float32: ...  # (0 | 1 | n, n_vocab)
    def embed(self, tokens: _Int32) -> _Float32: ...  # (n, n_embd), after the output norm
    def trace(self, tokens: _Int32, tap: Callable[[str, _Float32], object]) -> None: ...
    def truncate(self, n_tokens: int) -> None: ...  # keeps the first n_tokens
    def save(self) -> npt.NDArray[np.uint8]: ...  # the pages in use: (kv_bytes,)
    def check_saved(
        self, n_tokens: int, pages: npt.NDArray[np.uint8]
    ) -> None: ...  # raises as restore() would
    def restore(self, n_tokens: int, pages: npt.NDArray[np.uint8]) -> None: ...

class MemoryPlan(TypedDict):
    available: int
    weight_bytes: int
    kv_bytes_per_token: int
    reserve: int
    n_ctx_train: int
    n_ctx: int
    total_bytes: int

def plan_context(
    file: GgufFile,
    n_ctx: int | None = None,
    *,
    weights_loaded: bool = False,
    type_k: str = ...,
    type_v: str = ...,
) -> MemoryPlan: ...
def kv_types() -> dict[str, int | None]: ...  # of keys and values, the default first -> GGML's number
def architectures() -> dict[str, str]: ...  # general.architecture -> the models that people know it by

class MachineInfo(TypedDict):
    threads: int
    threads_why: str
    thread_cpus: list[int]  # one for each thread; nothing is pinned to them
    cores_found: str
    physical_cores: int
    efficiency_cores: int
    numa_nodes: list[int]
    memory_total: int
    memory_available: int
    memory_why: str

class CpuInfo(MachineInfo):
    level: str
    why: str
    levels: list[str]
    features: list[str]

def cpu_info() -> CpuInfo: ...

# Sampling

@final
class Sampler:
    """Chooses the next token: a pure function of its arguments. The defaults turn every step off."""

    def __init__(
        self,
        n_vocab: int,
        *,
        isa: str = "",  # of levels(); "" the best
        logit_bias: dict[int, float] = ...,  # -inf bans, inf allows these tokens alone
        min_tokens: int = ...,
        eog_ids: list[int] = ...,
        repeat_penalty: float = ...,
        frequency_penalty: float = ...,
        presence_penalty: float = ...,
        penalty_last_n: int = ...,
        dry_multiplier: float = ...,
        dry_base: float = ...,
        dry_allowed_length: int = ...,
        dry_penalty_last_n: int = ...,
        dry_breakers: list[list[tuple[int, int, int]]] = ...,
        top_n_sigma: float = ...,
        top_k: int = ...,
        typical_p: float = ...,
        top_p: float = ...,
        min_p: float = ...,
        xtc_probability: float = ...,
        xtc_threshold: float = ...,
        temperature: float = ...,
        dynatemp_range: float = ...,
        dynatemp_exponent: float = ...,
        mirostat_mode: int = ...,
        mirostat_tau: float = ...,
        mirostat_eta: float = ...,
        samplers: list[str] = ...,
        seed: int = ...,
    ) -> None: ...
    @property
    def n_vocab(self) -> int: ...
    @property
    def seed(self) -> int: ...
    def sample(
        self,
        logits: _Float32,
        history: _Int32,
        pos: int,
        *,
        choice: int = 0,
        n_prompt: int = 0,
        n_top_logprobs: int = -1,
    ) -> tuple[int, float, list[tuple[int, float]]]: ...
    def distribution(
        self, logits: _Float32, history: _Int32, pos: int, *, choice: int = 0, n_prompt: int = 0
    ) -> list[tuple[int, float]]: ...  # what sample() draws from

def samplers() -> list[str]: ...  # in the default order

# Kernels at a named level, for tests, benchmarks and doctor

def formats() -> list[tuple[str, int, int, int]]: ...  # name, GGUF type id, weights and bytes of a block
def decode(format: str, raw: npt.NDArray[np.uint8]) -> _Float32: ...  # any shape -> (n weights,)
def levels() -> list[str]: ...  # what this machine supports, slowest first

@final
class Panels:
    """A weight matrix as the kernels of a level read it. raw: (rows, row bytes)."""

    def __init__(self, level: str, format: str, raw: npt.NDArray[np.uint8]) -> None: ...
    def matmul(self, x: _Float32) -> _Float32: ...  # (n, cols) -> (n, rows)
    def residual(self, x: _Float32) -> _Float32: ...  # what rounding takes off x (n, cols)
    def unpack(self) -> npt.NDArray[np.uint8]: ...  # (rows, row bytes)
    def read(self) -> int: ...  # reads it all and computes next to nothing: the limit to compare with
    @property
    def n_bytes(self) -> int: ...

@final
class Limits:
    """What this machine can do at most, measured. n_threads 0: chosen."""

    def __init__(self, level: str, n_threads: int) -> None: ...
    @property
    def patterns(self) -> list[str]: ...
    def read(
        self, n_bytes: int, *, seconds: float = 0.5
    ) -> tuple[float, str]: ...  # bytes a second, and by which pattern
    def peak(
        self, kind: Literal["int8", "f32", "bf16"], *, seconds: float = 0.1
    ) -> float: ...  # products a second; 0: this CPU has no such instruction
    def sum(self, pattern: int, data: npt.NDArray[np.uint8]) -> int: ...  # of its int32, modulo 2^32
    def count(self, kind: Literal["int8", "f32", "bf16"], rounds: int) -> int: ...  # the products added up

def matmul_oracle(format: str, raw: npt.NDArray[np.uint8], x: _Float32) -> _Float32: ...
def cpu_info_at(root: str, cpus: list[int]) -> MachineInfo: ...  # as <root>/proc and <root>/sys tell
def elementwise(
    level: str,
    op: str,
    x: _Float32,
    a: _Float32 | None = None,
    b: _Float32 | None = None,
    s: float = 0,
    n_rot: int = 0,
) -> _Float32: ...

@final
class KvAttention:
    """Attention over KV pages. Shapes: k (n, n_head_kv, head_dim_k), v (n, n_head_kv, head_dim_v)."""

    def __init__(
        self,
        level: str,
        *,
        n_head: int,
        n_head_kv: int,
        head_dim_k: int,
        head_dim_v: int,
        n_positions: int,
        n_threads: int = 1,
        n_layers: int = 1,
        type_k: str = ...,
        type_v: str = ...,
    ) -> None: ...
    def store(self, pos0: int, k: _Float32, v: _Float32, layer: int = 0) -> None: ...
    def attention(  # q (n, n_head, head_dim_k) -> (n, n_head, head_dim_v)
        self,
        q: _Float32,
        pos0: int,
        *,
        scale: float,
        softcap: float = 0,
        window: int = 0,
        layer: int = 0,
        sinks: _Float32 | None = None,  # (n_head)
    ) -> _Float32: ...
    def time(self, q: _Float32, pos0: int, *, scale: float, repeats: int) -> list[float]: ...  # milliseconds
    def time_read(self, n_pages: int, *, repeats: int) -> list[float]: ...  # milliseconds
    @property
    def page_bytes(self) -> int: ...
