"""Speed of a model, beside what the machine can do at most.

Tests are llama-bench's: pp512 evaluates 512 random tokens at once, tg64 evaluates 64 one after another, each
at a depth: with so many tokens in the context already. The forward pass only, no sampling, one warm-up. The
machine's limits are measured before, between and after the repetitions: they change with its neighbours.
"""

from __future__ import annotations

import math
import resource
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np

from . import _core
from .errors import ParameterError
from .params import DEFAULT_KV_TYPE, INT_MAX, kv_type

PeakKind = Literal["int8", "f32", "bf16"]

_WARM_UP = 16  # decoded tokens
_FILL = 512  # tokens at a time on the way to a depth
_OUTSIDE = "outside"  # of any operation: the forward pass itself, and Python
_LARGEST_READ = 1 << 30
_SECONDS_OF_READING, _SECONDS_OF_A_PEAK = 0.3, 0.05  # of each sample
_CACHE_FACTOR = 2  # memory read is this much larger than the last cache


@dataclass(frozen=True, slots=True)
class BenchTest:
    """pp or tg: n tokens at a depth."""

    kind: str
    n: int
    depth: int

    @property
    def name(self) -> str:
        return f"{self.kind}{self.n}" + (f" @ d{self.depth}" if self.depth else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchParams:
    """What is measured. n_prompt and n_gen: tokens of prefills and of decoding; 0 measures nothing.

    type_k, type_v: what keys and values are kept as, by name.
    Error: ParameterError for values out of range, or where nothing is left to measure.
    """

    n_prompt: tuple[int, ...] = (512,)
    n_gen: tuple[int, ...] = (64,)
    depths: tuple[int, ...] = (0,)
    repeats: int = 5
    type_k: str = DEFAULT_KV_TYPE
    type_v: str = DEFAULT_KV_TYPE

    def __post_init__(self) -> None:
        for name in ("type_k", "type_v"):
            object.__setattr__(self, name, kv_type(name, getattr(self, name)))
        for name in ("n_prompt", "n_gen", "depths"):
            values = getattr(self, name)
            if not values or any(value < 0 for value in values):
                raise ParameterError(f"{name} must be one or more numbers >= 0, not {list(values)}")
            if len(set(values)) != len(values):
                raise ParameterError(f"{name} names a number twice: {list(values)}")
        if self.repeats < 1:
            raise ParameterError(f"repeats must be at least 1, not {self.repeats}")
        if not self.tests:
            raise ParameterError("nothing to measure: prompt and generation are both 0", "Give -p or -n.")
        if self.total_ctx > INT_MAX:
            raise ParameterError(
                f"the tests need a context of {self.total_ctx} tokens; there is none above {INT_MAX}",
                "Give smaller numbers for -p, -n and -d.",
            )

    @property
    def tests(self) -> list[BenchTest]:
        return [
            BenchTest(kind, n, depth)
            for depth in self.depths
            for kind, counts in (("pp", self.n_prompt), ("tg", self.n_gen))
            for n in counts
            if n
        ]

    def n_ctx(self, depth: int) -> int:
        return depth + max(self.n_prompt + self.n_gen)

    @property
    def total_ctx(self) -> int:
        """Of all depths, each with a context of its own."""
        return sum(map(self.n_ctx, self.depths))


@dataclass(frozen=True, slots=True)
class Cost:
    """What a test needs at the least: bytes read and products, of all its tokens."""

    n_bytes: int
    int8_macs: int
    float_macs: int
    pass_bytes: int  # of one pass over the weights: what is read again and again

    def seconds(self, limits: Mapping[str, float]) -> dict[str, float]:
        """The least time by limit: reading and arithmetic happen at once, the longer one counts."""
        arithmetic = self.int8_macs / limits["int8"] + self.float_macs / limits["f32"]
        return {"read": self.n_bytes / limits["read"], "arithmetic": arithmetic}


def cost(
    model: _core.Model, test: BenchTest, type_k: str = DEFAULT_KV_TYPE, type_v: str = DEFAULT_KV_TYPE
) -> Cost:
    """Weights count once a pass, of experts those used; of a prefill the last token alone has logits."""
    layers, head = model.layers_work, model.head_work
    n_heads = 1 if test.kind == "pp" else test.n
    n_passes = 1 if test.kind == "pp" else test.n
    weights = layers["bytes"] + head["bytes"]
    seen = [test.depth + (test.n if test.kind == "pp" else i + 1) for i in range(n_passes)]
    kv_bytes = sum(model.kv_bytes_read(n, type_k=type_k, type_v=type_v) for n in seen)
    return Cost(
        n_bytes=n_passes * weights + kv_bytes,
        int8_macs=test.n * layers["int8_macs"] + n_heads * head["int8_macs"],
        float_macs=test.n * layers["float_macs"] + n_heads * head["float_macs"],
        pass_bytes=weights + kv_bytes // n_passes,
    )


class Runner:
    """A model and a context for each depth, filled once. seconds(test) is one run."""

    def __init__(
        self, path: str, params: BenchParams, *, n_threads: int = 0, isa: str = "", profile: bool = False
    ) -> None:
        """Errors: ModelFileError and its kinds, MemoryLimitError, ParameterError."""
        began = time.perf_counter()
        file = _core.GgufFile(path)
        # Or MemoryLimitError:
        _core.plan_context(file, params.total_ctx, type_k=params.type_k, type_v=params.type_v)
        self.model = _core.Model(file, n_threads=n_threads, isa=isa, profile=profile)
        self.load_s = time.perf_counter() - began
        self.n_params = sum(math.prod(tensor.shape) for tensor in file.tensors)
        self.n_bytes = sum(tensor.n_bytes for tensor in file.tensors)
        self._params = params
        self._profile = profile
        self._sessions: dict[int, _core.Session] = {}
        self._rng = np.random.default_rng(0)
        first = self._session(params.depths[0])
        self._eval(first, max(1, params.n_prompt[0]))
        self.first_token_s = time.perf_counter() - began
        first.truncate(0)
        for _ in range(min(_WARM_UP, first.n_ctx)):
            self._eval(first, 1)
        self.profile: dict[str, dict[str, float]] = {}
        self._take_profile()

    def seconds(self, test: BenchTest) -> float:
        session = self._session(test.depth)
        while session.n_tokens < test.depth:  # in parts, between which Ctrl-C is answered
            self._eval(session, min(_FILL, test.depth - session.n_tokens))
        session.truncate(test.depth)
        self._take_profile()
        began = time.perf_counter()
        if test.kind == "pp":
            self._eval(session, test.n)
        else:
            for _ in range(test.n):
                self._eval(session, 1)
        took = time.perf_counter() - began
        self._add_profile(test, took)
        return took

    def _session(self, depth: int) -> _core.Session:
        if depth not in self._sessions:
            p = self._params
            self._sessions[depth] = _core.Session(
                self.model, p.n_ctx(depth), type_k=p.type_k, type_v=p.type_v
            )
        return self._sessions[depth]

    def _eval(self, session: _core.Session, n: int) -> None:
        session.eval(self._rng.integers(0, self.model.n_vocab, n, dtype=np.int32), "last")

    def _take_profile(self) -> dict[str, float]:
        return self.model.take_profile() if self._profile else {}

    def _add_profile(self, test: BenchTest, took: float) -> None:
        if not self._profile:
            return
        inside = self._take_profile()
        total = self.profile.setdefault(test.name, dict.fromkeys([*inside, _OUTSIDE], 0.0))
        for name, value in (*inside.items(), (_OUTSIDE, took - sum(inside.values()))):
            total[name] += value


class Meter:
    """Samples of the machine's limits, on the threads and at the level of a model."""

    def __init__(self, model: _core.Model, working_sets: Sequence[int]) -> None:
        """working_sets: bytes read over and over; caches give each a bandwidth of its own."""
        self._limits = _core.Limits(model.isa, model.n_threads)
        largest = max(_LARGEST_READ, _CACHE_FACTOR * last_cache_bytes())
        self.memory_bytes = min(largest, _core.cpu_info()["memory_available"] // 4)
        self._sizes = {n: min(n, self.memory_bytes) for n in working_sets}
        self.read: dict[int, list[float]] = {
            n: [] for n in sorted({self.memory_bytes, *self._sizes.values()})
        }
        self.peaks: dict[PeakKind, list[float]] = {"int8": [], "f32": [], "bf16": []}
        self.pattern = ""

    def sample(self) -> None:
        for n, rates in self.read.items():
            rate, pattern = self._limits.read(n, seconds=_SECONDS_OF_READING)
            if n == self.memory_bytes and rate > max(rates, default=0):
                self.pattern = pattern
            rates.append(rate)
        for kind, rates in self.peaks.items():
            rates.append(self._limits.peak(kind, seconds=_SECONDS_OF_A_PEAK))

    def limits(self, working_set: int) -> dict[str, float]:
        """Medians, after the first sample: bytes a second of that working set, products a second."""
        return {
            "read": median(self.read[self._sizes[working_set]]),
            **{kind: median(rates) for kind, rates in self.peaks.items()},
        }

    def as_dict(self) -> dict[str, Any]:
        """In GB/s and GMAC/s; a kind of products that this CPU lacks is absent."""
        read = self.read[self.memory_bytes]
        return {
            "read_gb_s": _figures(read, 1e9),
            "read_mib": self.memory_bytes >> 20,
            "read_pattern": self.pattern,
            **{f"{kind}_gmac_s": _figures(rates, 1e9) for kind, rates in self.peaks.items() if any(rates)},
        }


@dataclass(slots=True)
class Row:
    """A test's results: tokens a second, run by run."""

    test: BenchTest
    cost: Cost
    rates: list[float] = field(default_factory=list)

    def share(self, limits: Mapping[str, float]) -> tuple[float, str]:
        """How much of the limit the median run reached, and which limit it is: "read" or "arithmetic"."""
        least = self.cost.seconds(limits)
        which = max(least, key=least.__getitem__)
        return least[which] * median(self.rates) / self.test.n, which


class Bench:
    """Measures step by step, so that what is there can be shown whenever it ends."""

    def __init__(self, path: str, params: BenchParams, **runner: Any) -> None:
        reset_peak_memory()
        self.params = params
        self.runner = Runner(path, params, **runner)
        self.peak_rss = peak_memory()
        self.name = Path(path).name
        model = self.runner.model
        self.rows = [Row(test, cost(model, test, params.type_k, params.type_v)) for test in params.tests]
        self.meter = Meter(model, [row.cost.pass_bytes for row in self.rows])

    def steps(self) -> Iterator[None]:
        self._sample()
        for _ in range(self.params.repeats):
            for row in self.rows:
                row.rates.append(row.test.n / self.runner.seconds(row.test))
                yield
            self._sample()

    def _sample(self) -> None:
        """The memory that limits are measured in is not the model's: it does not count as its peak."""
        self.peak_rss = max(self.peak_rss, peak_memory())
        self.meter.sample()
        reset_peak_memory()

    def as_dict(self) -> dict[str, Any]:
        model = self.runner.model
        facts: dict[str, Any] = {
            "lib": f"pyllamacpp {_version()}",
            "model": self.name,
            "size": self.runner.n_bytes,
            "params": self.runner.n_params,
            "isa": model.isa,
            "threads": model.n_threads,
            "kv_types": [self.params.type_k, self.params.type_v],
            "load_s": round(self.runner.load_s, 3),
            "first_token_s": round(self.runner.first_token_s, 3),
            "peak_rss": self.peak_rss,
            "runs": _runs(self.rows),
            "limits": self.meter.as_dict(),
            "shares": [self._share(row) for row in self.rows if row.rates],
        }
        if self.runner.profile:
            facts["profile"] = {
                name: {op: round(value, 6) for op, value in seconds.items()}
                for name, seconds in self.runner.profile.items()
            }
        return facts

    def _share(self, row: Row) -> dict[str, Any]:
        limits, tokens = self.meter.limits(row.cost.pass_bytes), row.test.n
        share, which = row.share(limits)
        return {
            "test": row.test.name,
            "share": round(share, 4),
            "of": which,
            "bytes_per_token": row.cost.n_bytes // tokens,
            "int8_macs_per_token": row.cost.int8_macs // tokens,
            "float_macs_per_token": row.cost.float_macs // tokens,
        }


def _runs(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """By depth, and by size where there are several: `n_prompt` and `n_gen` tell which."""
    runs: list[dict[str, Any]] = []
    by_depth: dict[int, dict[str, list[Row]]] = {}
    for row in rows:
        by_depth.setdefault(row.test.depth, {"pp": [], "tg": []})[row.test.kind].append(row)
    for depth, kinds in by_depth.items():
        for i in range(max(map(len, kinds.values()))):
            run: dict[str, Any] = {"depth": depth}
            for kind, size in (("pp", "n_prompt"), ("tg", "n_gen")):
                one = kinds[kind][i] if i < len(kinds[kind]) else None
                run[size] = one.test.n if one else 0
                run[kind] = [round(rate, 2) for rate in one.rates] if one else []
            runs.append(run)
    return runs


def _figures(values: Sequence[float], unit: float) -> dict[str, float]:
    return {"median": round(median(values) / unit, 2), "best": round(max(values) / unit, 2)} if values else {}


def _version() -> str:
    from . import __version__

    return __version__


def last_cache_bytes(root: str = "") -> int:
    """Of the first CPU's largest cache; 0 where the system does not tell."""
    sizes = [0]
    for size in Path(f"{root}/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        try:
            text = size.read_text().strip()
            sizes.append(int(text.rstrip("KMG")) << {"K": 10, "M": 20, "G": 30}.get(text[-1:], 0))
        except (OSError, ValueError):
            continue
    return max(sizes)


def reset_peak_memory() -> None:
    """Forget this process's peak so far, where Linux lets us: else it is of the whole process."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def peak_memory() -> int:
    """Bytes this process has had in memory at most."""
    try:
        status = Path("/proc/self/status").read_text()
        return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
