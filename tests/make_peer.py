"""Writes tests/peer.json: what llama-cpp-python offers, for the table of differences and the tests.

    pip install llama-cpp-python && python tests/make_peer.py

Names, parameters with their defaults, and prompts as its chat formats render them; no code of it.
"""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import llama_cpp
from llama_cpp import llama_chat_format

PATH = Path(__file__).with_name("peer.json")
SYSTEM = {"role": "system", "content": "SYS"}
TURNS = [
    {"role": "user", "content": "U1"},
    {"role": "assistant", "content": "A1"},
    {"role": "user", "content": "U2"},
]
CONVERSATIONS = {
    "user": TURNS[:1],
    "system": [SYSTEM, *TURNS[:1]],
    "turns": TURNS,
    "system, turns": [SYSTEM, *TURNS],
}


def parameters(function: Any) -> dict[str, Any]:
    """Name -> default; "required" where there is none."""
    signature = inspect.signature(getattr(function, "__func__", function))
    return {
        p.name: "required" if p.default is p.empty else p.default
        for p in signature.parameters.values()
        if p.name not in ("self", "cls") and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    }


def main() -> None:
    members = {
        name: member
        for name, member in vars(llama_cpp.Llama).items()
        if not name.startswith("_") or name in ("__init__", "__call__")
    }
    methods = {n: parameters(m) for n, m in members.items() if not isinstance(m, property)}
    source = inspect.getsource(llama_cpp.Llama)
    attributes = set(re.findall(r"self\.([a-z]\w*)\s*(?::[^=\n]+)?= ", source))
    attributes |= {n for n, m in members.items() if isinstance(m, property)}
    classes = {
        n: getattr(m, "__module__", "")
        for n, m in vars(llama_cpp).items()
        if inspect.isclass(m) and str(m.__module__).startswith("llama_cpp.") and not n.startswith("_")
    }
    skipped = ("llama_cpp.llama_cpp", "llama_cpp.llama_types")
    rendered: dict[str, dict[str, Any]] = {}
    registry = llama_chat_format.LlamaChatCompletionHandlerRegistry()
    for name in registry._chat_handlers:
        rendered[name] = {}
    formatters = inspect.getsource(llama_chat_format)
    for name, function in re.findall(r'@register_chat_format\("([^"]+)"\)\s*def (\w+)', formatters):
        formatter = getattr(llama_chat_format, function)
        if name != "openbuddy":  # pages of text
            rendered[name] = {c: formatter(messages=m).prompt for c, m in CONVERSATIONS.items()}
    PATH.write_text(
        json.dumps(
            {
                "version": llama_cpp.__version__,
                "methods": methods,
                "attributes": sorted(attributes),
                "classes": sorted(n for n, module in classes.items() if module not in skipped),
                "types": sum(module == "llama_cpp.llama_types" for module in classes.values()),
                "chat_formats": rendered,
            },
            indent=1,
            ensure_ascii=False,
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
