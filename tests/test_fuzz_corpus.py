"""The inputs of the fuzz target of texts, those that once failed among them (ctest runs the native ones)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

FUZZ = Path(__file__).with_name("fuzz")
INPUTS = sorted((FUZZ / "corpus/fuzz_text").iterdir())


@pytest.fixture(scope="module")
def target() -> ModuleType:
    arguments, sys.argv = sys.argv, ["fuzz_text.py", "--replay"]
    try:
        spec = importlib.util.spec_from_file_location("fuzz_text", FUZZ / "fuzz_text.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.argv = arguments


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: path.name)
def test_input(target: ModuleType, path: Path) -> None:
    target.one_input(path.read_bytes())
