"""`info`: what a model file is, and whether and how it fits."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

from ..params import DEFAULT_KV_TYPE, LoadParams
from .guard import guarded, print_table
from .options import CacheTypeK, CacheTypeV, Json, ModelArgument, Verbose


@guarded
def info(
    model: ModelArgument,
    as_json: Json = False,
    type_k: CacheTypeK = DEFAULT_KV_TYPE,
    type_v: CacheTypeV = DEFAULT_KV_TYPE,
    verbose: Verbose = False,
) -> None:
    """Show what a model is and how much memory it takes."""
    from ..hub import resolve

    load = LoadParams(type_k=type_k, type_v=type_v)
    facts = describe(str(resolve(model)), load.type_k, load.type_v)
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    print_table(_rows(facts))


def describe(path: str, type_k: str, type_v: str) -> dict[str, Any]:
    """The facts of a GGUF file; `unsupported` says why it cannot be run, if so.

    Errors: ModelFileError if it is no readable GGUF file.
    """
    from .. import _core
    from ..errors import MemoryLimitError, ModelFileError

    file = _core.GgufFile(path)
    metadata = file.metadata
    arch = str(metadata.get("general.architecture", ""))
    formats: Counter[str] = Counter()
    for tensor in file.tensors:
        formats[tensor.format] += tensor.n_bytes
    tokens = metadata.get("tokenizer.ggml.tokens")
    facts: dict[str, Any] = {
        "path": path,
        "files": len(file.shards),
        "bytes": sum(t.n_bytes for t in file.tensors),
        "kind": _kind(metadata, arch, len(file.tensors)),
        "name": metadata.get("general.name"),
        "architecture": arch,
        "parameters": sum(math.prod(t.shape) for t in file.tensors),
        "formats": dict(formats.most_common()),
        "tokenizer": metadata.get("tokenizer.ggml.model"),
        "pre_tokenizer": metadata.get("tokenizer.ggml.pre"),
        "vocabulary": None if tokens is None else len(tokens),
        "chat_template": "tokenizer.chat_template" in metadata,
        "shape": {
            name: value
            for name in ("block_count", "embedding_length", "feed_forward_length", "attention.head_count",
                         "attention.head_count_kv", "context_length")
            if isinstance(value := metadata.get(f"{arch}.{name}"), int)
        },
    }  # fmt: skip
    try:
        facts["memory"] = dict(_core.plan_context(file, type_k=type_k, type_v=type_v))
        facts["kv_types"] = [type_k, type_v]
    except (ModelFileError, MemoryLimitError) as error:
        facts["unsupported"] = str(error.args[0])
    return facts


def _kind(metadata: dict[str, Any], arch: str, n_tensors: int) -> str:
    declared = metadata.get("general.type", "model")
    if arch == "clip" or declared in ("mmproj", "projector"):
        return "projector (goes with a model that sees or hears; not a model by itself)"
    if declared == "adapter":
        return "adapter (changes another model; not a model by itself)"
    if n_tensors == 0 and "tokenizer.ggml.tokens" in metadata:
        return "vocabulary (tokenizer only, no weights)"
    return str(declared)


def _rows(facts: dict[str, Any]) -> list[tuple[str, Any]]:
    shape, total = facts["shape"], facts["bytes"]
    rows: list[tuple[str, Any]] = [
        ("file", facts["path"] + (f" and {facts['files'] - 1} more" if facts["files"] > 1 else "")),
        ("kind", facts["kind"]),
    ]
    if facts["name"]:
        rows.append(("name", facts["name"]))
    rows.append(("architecture", facts["architecture"] or "not given"))
    if facts["parameters"]:
        rows.append(("parameters", f"{_count(facts['parameters'])} in {_mib(total)}"))
        shares = (f"{name} {100 * n / total:.1f} %" for name, n in facts["formats"].items())
        rows.append(("formats", ", ".join(shares)))
    rows += [(name.replace(".", " ").replace("_", " "), value) for name, value in shape.items()]
    if facts["tokenizer"]:
        pre = f" / {facts['pre_tokenizer']}" if facts["pre_tokenizer"] else ""
        rows.append(("tokenizer", f"{facts['tokenizer']}{pre}, {facts['vocabulary']} tokens"))
        rows.append(("chat template", "yes" if facts["chat_template"] else "no"))
    if "unsupported" in facts:
        rows.append(("cannot be run", facts["unsupported"]))
    if plan := facts.get("memory"):
        kv = plan["kv_bytes_per_token"]
        rows += [
            ("weights", _mib(plan["weight_bytes"])),
            (
                "KV cache",
                f"{kv / 1024:.1f} KiB a token as {_types(facts['kv_types'])}, "
                f"{_mib(kv * plan['n_ctx'])} when the context is full",
            ),
            (
                "context",
                f"{plan['n_ctx']} of {plan['n_ctx_train']} trained ({_mib(plan['available'])} available)",
            ),
        ]
    return rows


def _types(types: list[str]) -> str:
    return types[0] if types[0] == types[1] else f"{types[0]} and {types[1]}"


def _count(n: int) -> str:
    for unit, size in (("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if n >= size:
            return f"{n / size:.1f} {unit}"
    return str(n)


def _mib(n_bytes: int) -> str:
    return f"{n_bytes / 2**20:.1f} MiB" if n_bytes < 2**30 else f"{n_bytes / 2**30:.2f} GiB"
