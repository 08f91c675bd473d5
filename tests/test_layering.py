"""Who may include or import whom (CONTRIBUTING.md), where intrinsics, OS branches and architecture names may
stand, and how large a file or function may be. Reads the sources only."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CSRC = ROOT / "csrc"
PACKAGE = ROOT / "pyllamacpp"

# A folder of csrc/ may include itself and these.
MAY_INCLUDE: dict[str, set[str]] = {
    "base": set(),
    "quant": {"base"},
    "gguf": {"base", "quant"},
    "tensor": {"base", "quant"},
    "sampling": {"base"},
    "backend": {"base", "quant", "tensor"},
    "model": {"base", "quant", "tensor", "gguf", "backend"},
    "python": {"base", "quant", "tensor", "gguf", "backend", "model", "sampling"},
}
# model/ sees the interface, never a device.
MODEL_MAY_SEE = {"backend/backend.h"}

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60


def cpp_files() -> list[Path]:
    return sorted(p for p in CSRC.rglob("*") if p.suffix in {".h", ".cpp", ".def"})


def python_files() -> list[Path]:
    return sorted(p for p in PACKAGE.rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def includes(path: Path) -> list[str]:
    return re.findall(r'^\s*#include "([^"]+)"', path.read_text(), re.M)


def imports(path: Path) -> set[str]:
    """Absolute names of everything imported, at any depth of the file."""
    package = ".".join(path.relative_to(ROOT).with_suffix("").parts[:-1])
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, base] if base else parents)
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return found


@pytest.mark.parametrize("path", cpp_files(), ids=relative)
def test_csrc_includes_follow_the_layers(path: Path) -> None:
    layer = path.relative_to(CSRC).parts[0]
    allowed = MAY_INCLUDE[layer] | {layer}
    for name in includes(path):
        assert (CSRC / name).is_file(), f"{relative(path)} includes {name}, which is not in csrc/"
        assert name.split("/")[0] in allowed, f"{relative(path)} ({layer}) may not include {name}"
        if layer == "model" and name.startswith("backend/"):
            assert name in MODEL_MAY_SEE, f"{relative(path)} may only see {MODEL_MAY_SEE}, not {name}"


@pytest.mark.parametrize("path", cpp_files(), ids=relative)
def test_special_code_stays_in_its_room(path: Path) -> None:
    text, name = path.read_text(), path.relative_to(CSRC).as_posix()
    if not name.startswith("backend/cpu/simd/"):
        assert not re.search(r"\b_mm\d*_|immintrin\.h|arm_neon\.h", text), f"intrinsics in {name}"
    if not name.startswith("base/"):
        assert not re.search(r"^#\s*(if|ifdef|elif).*(_WIN32|__APPLE__|__linux__)", text, re.M), (
            f"OS #if in {name}"
        )
    if name != "model/arch.cpp":
        assert not re.search(r'"(llama|qwen\d?|gemma\d?|phi\d?|mistral|falcon)"', text), (
            f"architecture name in {name}"
        )


def test_python_imports_follow_the_layers() -> None:
    for path in python_files():
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for name in imports(path):
            assert not name.startswith("torch"), f"{relative(path)} imports torch"
            if module.startswith(
                ("pyllamacpp.text", "pyllamacpp.hub", "pyllamacpp.params", "pyllamacpp.errors")
            ):
                assert not name.startswith(("pyllamacpp.llama", "pyllamacpp.cli", "pyllamacpp.server")), (
                    f"{relative(path)} imports {name}"
                )
            if not module.startswith("pyllamacpp.cli"):
                assert not name.startswith("pyllamacpp.cli") or module == "pyllamacpp.__main__", (
                    f"{relative(path)} imports {name}"
                )


@pytest.mark.parametrize("path", [*cpp_files(), *python_files()], ids=relative)
def test_files_are_small(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_FILE_LINES, f"{relative(path)} wants splitting"


@pytest.mark.parametrize("path", python_files(), ids=relative)
def test_python_functions_are_small(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= MAX_FUNCTION_LINES, f"{relative(path)}: {node.name} has {lines} lines"
