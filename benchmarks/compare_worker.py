"""One engine of compare.py, kept open between runs: it answers commands, lines of JSON on standard input.

    python compare_worker.py pyllamacpp|llama_cpp

Runs in that engine's own environment, so nothing of the other one is imported.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any, Protocol


class Engine(Protocol):
    """A model and one sequence. evaluate() adds tokens at its end and makes the last one's logits."""

    def __init__(self, path: str, n_ctx: int, threads: int, type_k: str, type_v: str) -> None: ...
    def facts(self) -> dict[str, Any]: ...
    def evaluate(self, tokens: list[int]) -> None: ...
    def truncate(self, n_tokens: int) -> None: ...


class Pyllamacpp:
    def __init__(self, path: str, n_ctx: int, threads: int, type_k: str, type_v: str) -> None:
        from pyllamacpp import _core

        began = time.perf_counter()
        self.model = _core.Model(_core.GgufFile(path), n_threads=threads)
        self.session = _core.Session(self.model, n_ctx, type_k=type_k, type_v=type_v)
        self._load_s = time.perf_counter() - began
        self._meter: Any = None
        self._costs: dict[str, Any] = {}

    def facts(self) -> dict[str, Any]:
        from pyllamacpp import __version__

        return {
            "lib": f"pyllamacpp {__version__}",
            "n_vocab": self.model.n_vocab,
            "threads": self.model.n_threads,
            "system": self.model.isa,
            "load_s": round(self._load_s, 3),
        }

    def evaluate(self, tokens: list[int]) -> None:
        import numpy as np

        self.session.eval(np.array(tokens, dtype=np.int32), "last")

    def truncate(self, n_tokens: int) -> None:
        self.session.truncate(n_tokens)

    def sample_limits(self, tests: list[list[Any]]) -> dict[str, Any]:
        """Sample the machine once more. Returns: its limits so far, and the least seconds of each test."""
        from pyllamacpp.bench import BenchTest, Meter, cost

        if self._meter is None:
            named = [BenchTest(*test) for test in tests]
            self._costs = {test.name: cost(self.model, test, *self.session.kv_types) for test in named}
            self._meter = Meter(self.model, [one.pass_bytes for one in self._costs.values()])
        self._meter.sample()
        least = {
            name: max(one.seconds(self._meter.limits(one.pass_bytes)).values())
            for name, one in self._costs.items()
        }
        return {"limits": self._meter.as_dict(), "least_s": least}


GGML_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8, "bf16": 30}


class LlamaCpp:
    def __init__(self, path: str, n_ctx: int, threads: int, type_k: str, type_v: str) -> None:
        import ctypes

        import llama_cpp

        self._lib = llama_cpp
        log = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
        self._silence = log(lambda *_: None)  # kept: the library calls it
        llama_cpp.llama_log_set(self._silence, ctypes.c_void_p())
        llama_cpp.llama_backend_init()
        began = time.perf_counter()
        model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        if not model:
            raise SystemExit(f"llama_cpp cannot open {path}")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = n_ctx
        params.n_batch, params.n_ubatch = 2048, 512
        params.n_threads = params.n_threads_batch = threads
        params.type_k, params.type_v = GGML_TYPES[type_k], GGML_TYPES[type_v]
        # Off, as its Llama(...) has it and as it is faster on CPUs; values in blocks need it.
        params.flash_attn_type = int(type_v.startswith("q"))
        self._context = llama_cpp.llama_init_from_model(model, params)
        if not self._context:
            raise SystemExit(f"llama_cpp makes no context of {n_ctx} tokens, {type_k}/{type_v}")
        self._load_s = time.perf_counter() - began
        self._n_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))

    def facts(self) -> dict[str, Any]:
        return {
            "lib": f"llama-cpp-python {self._lib.__version__}",
            "n_vocab": self._n_vocab,
            "threads": self._lib.llama_n_threads(self._context),
            "system": self._lib.llama_print_system_info().decode().strip(),
            "load_s": round(self._load_s, 3),
        }

    def evaluate(self, tokens: list[int]) -> None:
        array = (self._lib.llama_token * len(tokens))(*tokens)
        if self._lib.llama_decode(self._context, self._lib.llama_batch_get_one(array, len(tokens))):
            raise SystemExit("llama_decode failed")
        self._lib.llama_synchronize(self._context)

    def truncate(self, n_tokens: int) -> None:
        memory = self._lib.llama_get_memory(self._context)
        if not self._lib.llama_memory_seq_rm(memory, 0, n_tokens, -1):
            raise SystemExit(f"llama_cpp cannot go back to {n_tokens} tokens")


ENGINES = {"pyllamacpp": Pyllamacpp, "llama_cpp": LlamaCpp}
_PART = 512  # tokens at a time on the way to a depth


def run(engine: Engine, depth: int, tokens: list[int], at_once: bool) -> float:
    """Seconds to evaluate the tokens at a depth that is filled already."""
    engine.truncate(depth)
    parts = [tokens] if at_once else [[token] for token in tokens]
    began = time.perf_counter()
    for part in parts:
        engine.evaluate(part)
    return time.perf_counter() - began


def fill(engine: Engine, tokens: list[int]) -> None:
    engine.truncate(0)
    for at in range(0, len(tokens), _PART):
        engine.evaluate(tokens[at : at + _PART])


def answers(make: type[Engine], lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    engine = make(**json.loads(next(lines)))
    yield engine.facts()
    for line in lines:
        command, arguments = json.loads(line)
        if command == "fill":
            fill(engine, **arguments)
            yield {}
        elif command == "run":
            yield {"seconds": run(engine, **arguments)}
        else:
            yield engine.sample_limits(**arguments)  # type: ignore[attr-defined]


def start(library: str, path: str, keywords: str, prompt: str) -> None:
    """Open a model as its users do and write the first token: the process around it is measured."""
    import importlib

    llm = importlib.import_module(library).Llama(path, verbose=False, **json.loads(keywords))
    for chunk in llm(prompt, max_tokens=1, temperature=0, stream=True):
        sys.stdout.write(chunk["choices"][0]["text"] + "\n")
        sys.stdout.flush()
        return


if __name__ == "__main__":
    if sys.argv[1] == "start":
        start(*sys.argv[2:])
    else:
        for answer in answers(ENGINES[sys.argv[1]], iter(sys.stdin.readline, "")):
            print(json.dumps(answer), flush=True)
