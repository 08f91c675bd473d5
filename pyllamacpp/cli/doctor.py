"""`doctor`: what this machine offers, what is used of it, and why."""

from __future__ import annotations

import json
from typing import Any

from .guard import guarded, print_table
from .options import Json, Verbose

_PACKAGES = ("numpy", "tokenizers", "jinja2", "huggingface-hub", "typer", "rich", "prompt_toolkit")


@guarded
def doctor(as_json: Json = False, verbose: Verbose = False) -> None:
    """Show instruction set, threads, memory and versions, and why they are what they are."""
    report = _report()
    if as_json:
        print(json.dumps(report, indent=2))
        return
    cpu, versions = report["cpu"], report["versions"]
    print_table(
        [
            ("instruction set", f"{cpu['level']} ({cpu['why']})"),
            ("", f"supported: {', '.join(cpu['levels'])}"),
            ("features", " ".join(cpu["features"])),
            ("cores", cpu["cores_found"]),
            ("threads", f"{cpu['threads']} ({cpu['threads_why']})"),
            ("memory", f"{_gib(cpu['memory_available'])} available of {_gib(cpu['memory_total'])}"),
            ("", cpu["memory_why"]),
            ("models", report["cache"]),
            ("default model", report["default_model"]),
            ("versions", f"pyllamacpp {versions.pop('pyllamacpp')}, Python {versions.pop('python')}"),
            ("", ", ".join(f"{name} {version}" for name, version in versions.items())),
            ("system", report["system"]),
        ]
    )


def _report() -> dict[str, Any]:
    import platform
    from importlib.metadata import PackageNotFoundError, version

    from .. import __version__, _core
    from ..errors import PyllamacppError
    from ..hub import DEFAULT_MODEL, cache_dir, resolve

    versions = {"pyllamacpp": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "missing"
    try:
        default = str(resolve(DEFAULT_MODEL, offline=True))
    except PyllamacppError:
        default = f"{DEFAULT_MODEL}, not fetched yet"
    return {
        "cpu": dict(_core.cpu_info()),
        "cache": str(cache_dir()),
        "default_model": default,
        "versions": versions,
        "system": platform.platform(),
    }


def _gib(n_bytes: int) -> str:
    return f"{n_bytes / 2**30:.1f} GiB"
