"""Build the extension `pyllamacpp._core`: a thin `build_ext` that drives CMake and Ninja.

Everything about the native code (sources, flags, instruction sets) is in csrc/CMakeLists.txt. Ninja tracks
headers, so an edited kernel is always recompiled and relinked; nothing else outlives an installation.
"""

import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pybind11
from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent.resolve()
# What CMake reads from the environment when a build folder is new, and never again.
READ_ONCE = (
    "CMAKE_TOOLCHAIN_FILE",
    "CXX",
    "CXXFLAGS",
    "CPPFLAGS",
    "LDFLAGS",
    "CMAKE_CXX_COMPILER_LAUNCHER",
    "CMAKE_PREFIX_PATH",
)


def wait_for_other_builds() -> None:
    """Builds in one tree share its folders, so a process that builds waits until earlier ones have ended."""
    try:
        (ROOT / "build").mkdir(exist_ok=True)
        lock = os.open(ROOT / "build" / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise SystemExit(
            f"error: the build writes into the source tree, and it cannot: {error}\n"
            "hint: copy the tree to a folder that you may write to, and install from there"
        ) from None
    with contextlib.suppress(OSError, ImportError):  # a file system or an operating system without such locks
        import fcntl

        fcntl.lockf(lock, fcntl.LOCK_EX)  # never closed: held until the process ends


def build_tool(name: str) -> str:
    """The build requirement's own executable, else the one on PATH."""
    beside = Path(sys.executable).with_name(name)
    found = shutil.which(name) or (str(beside) if beside.exists() else None)
    if found is None:
        raise SystemExit(
            f"error: {name} not found\nhint: with --no-build-isolation run: pip install cmake ninja pybind11"
        )
    return found


def call(*command: str) -> None:
    """Run a tool; it says itself what is wrong, so no traceback of ours comes after that."""
    try:
        subprocess.run(command, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise SystemExit(
            "error: building the C++ code failed\n"
            "hint: the first error above says why; a C++20 compiler is needed (GCC >= 11 or Clang >= 14); "
            "the environment variable CXX chooses one"
        ) from None


class Build(build):
    """A wheel holds what the source tree holds now: no module that an earlier build left behind."""

    def run(self) -> None:
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class PortableWheel(bdist_wheel):
    """A wheel whose tag says which Linux systems it runs on, as auditwheel finds (manylinux, musllinux).

    That depends on the C library it was linked with; CONTRIBUTING.md tells how to link with an old one.
    """

    def run(self) -> None:
        super().run()
        if sys.platform != "linux" or importlib.util.find_spec("auditwheel") is None:
            return
        built = Path(self.distribution.dist_files[-1][2])
        with tempfile.TemporaryDirectory() as folder:
            command = (
                sys.executable,
                "-m",
                "auditwheel",
                "repair",
                "--only-plat",
                "--wheel-dir",
                folder,
                built,
            )
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                print(f"The wheel is for this system only: {done.stderr.strip()}", file=sys.stderr)
                return
            (repaired,) = Path(folder).glob("*.whl")
            built.unlink()
            shutil.copy(repaired, self.dist_dir)


class CMakeBuild(build_ext):
    """Configure and build csrc/, then put the module where setuptools expects it."""

    def build_extension(self, ext: Extension) -> None:
        target = Path(self.get_ext_fullpath(ext.name)).resolve()
        # Not build_temp: an editable installation throws that away, and would compile everything each time.
        build_dir = ROOT / "build" / f"cmake-{sysconfig.get_config_var('SOABI')}"
        self.keep_only_if_unchanged(build_dir)
        call(
            build_tool("cmake"), "-S", str(ROOT / "csrc"), "-B", str(build_dir), "-G", "Ninja",
            f"-DCMAKE_MAKE_PROGRAM={build_tool('ninja')}",
            f"-DCMAKE_BUILD_TYPE={'Debug' if self.debug else 'Release'}",
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
            f"-DPYLLAMACPP_MODULE={target}",
        )  # fmt: skip
        ours = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        jobs = self.parallel or os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or ours
        call(build_tool("cmake"), "--build", str(build_dir), "--target", "_core", "-j", str(jobs))

    @staticmethod
    def keep_only_if_unchanged(build_dir: Path) -> None:
        """Begin anew if compiler, flags or place of the tree changed: CMake would not notice, or refuse."""
        now = json.dumps({"source": str(ROOT), **{name: os.environ.get(name) for name in READ_ONCE}})
        stamp = build_dir / "settings.json"
        if not stamp.is_file() or stamp.read_text("utf-8") != now:
            shutil.rmtree(build_dir, ignore_errors=True)
            build_dir.mkdir(parents=True)
            stamp.write_text(now, "utf-8")


wait_for_other_builds()
setup(
    ext_modules=[Extension("pyllamacpp._core", sources=[])],
    cmdclass={"bdist_wheel": PortableWheel, "build": Build, "build_ext": CMakeBuild},
)
