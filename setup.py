"""Build the extension `pyllamacpp._core`: a thin `build_ext` that drives CMake and Ninja.

Everything about the native code (sources, flags, instruction sets) is in csrc/CMakeLists.txt. Ninja tracks
headers, so an edited kernel is always recompiled and relinked; nothing is cached beside it.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pybind11
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent.resolve()


def build_tool(name: str) -> str:
    """The build requirement's own executable, else the one on PATH."""
    beside = Path(sys.executable).with_name(name)
    found = shutil.which(name) or (str(beside) if beside.exists() else None)
    if found is None:
        raise RuntimeError(
            f"{name} not found; with --no-build-isolation run: pip install cmake ninja pybind11"
        )
    return found


class CMakeBuild(build_ext):
    """Configure and build csrc/, then put the module where setuptools expects it."""

    def build_extension(self, ext: Extension) -> None:
        target = Path(self.get_ext_fullpath(ext.name)).resolve()
        build_dir = Path(self.build_temp).resolve() / "cmake"
        build_dir.mkdir(parents=True, exist_ok=True)
        configure = [
            build_tool("cmake"), "-S", str(ROOT / "csrc"), "-B", str(build_dir), "-G", "Ninja",
            f"-DCMAKE_MAKE_PROGRAM={build_tool('ninja')}",
            f"-DCMAKE_BUILD_TYPE={'Debug' if self.debug else 'Release'}",
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
            f"-DPYLLAMACPP_MODULE={target}",
        ]  # fmt: skip
        subprocess.run(configure, check=True)
        jobs = str(self.parallel or os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or os.cpu_count() or 1)
        subprocess.run(
            [build_tool("cmake"), "--build", str(build_dir), "--target", "_core", "-j", jobs], check=True
        )


setup(ext_modules=[Extension("pyllamacpp._core", sources=[])], cmdclass={"build_ext": CMakeBuild})
