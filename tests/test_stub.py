"""The extension's stub names what the extension has, no more and no less."""

from __future__ import annotations

import ast
from pathlib import Path

import tiny

from pyllamacpp import _core

STUB = ast.parse((Path(_core.__file__).parent / "_core.pyi").read_text())
TYPES_ONLY = {"CpuInfo", "MachineInfo", "MemoryPlan", "Work"}


def public(names: list[str]) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def test_module() -> None:
    stub = {node.name for node in STUB.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    assert stub - TYPES_ONLY == public(dir(_core))


def test_classes() -> None:
    for node in STUB.body:
        if isinstance(node, ast.ClassDef) and node.name not in TYPES_ONLY:
            stub = public([member.name for member in node.body if isinstance(member, ast.FunctionDef)])
            assert stub == public(dir(getattr(_core, node.name))), node.name


def test_dictionaries(tmp_path: Path) -> None:
    keys = {
        node.name: {item.target.id for item in node.body if isinstance(item, ast.AnnAssign)}  # type: ignore[union-attr]
        for node in STUB.body
        if isinstance(node, ast.ClassDef) and node.name in TYPES_ONLY
    }
    assert keys["CpuInfo"] | keys["MachineInfo"] == set(_core.cpu_info())
    assert keys["MachineInfo"] == set(_core.cpu_info_at("/", [0]))
    tiny.write(tmp_path / "m.gguf")
    file = _core.GgufFile(str(tmp_path / "m.gguf"))
    assert keys["MemoryPlan"] == set(_core.plan_context(file))
    assert keys["Work"] == set(_core.Model(file).layers_work)
