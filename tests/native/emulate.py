"""Proves the instruction-set levels that this machine lacks: emulate.py WORK [--reuse BUILD].

ARM: the core and its native tests, cross-compiled, under three CPU models of qemu-aarch64: plain ARMv8.0,
with dot products, with int8 matrix products. Each must choose its level and give the bits of digests.txt.
x86: the native tests and the Python extension on CPU models without AVX and without AVX-512: an instruction
above the chosen level would end them. BUILD is a build folder of csrc/ for this machine, to use what it has.

Needs Debian's g++-aarch64-linux-gnu and qemu-user-static, and installs them with apt-get where it may. What
cannot be had is skipped, and said. Everything else that goes wrong is an error.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "tests" / "native"
ARM_CPUS = {"cortex-a53": "neon", "cortex-a76": "dotprod", "max": "i8mm"}
X86_CPUS = {"Nehalem": "baseline", "Haswell": "avx2"}  # QEMU emulates no AVX-512
TESTS = ("test_base", "test_gguf", "test_limits", "test_sampling", "test_digests", "test_model")
# QEMU is slow at AVX, and test_digests evaluates models too.
TOO_SLOW = {("Haswell", "test_model")}
PACKAGES = {"aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu", "qemu-aarch64-static": "qemu-user-static",
            "qemu-x86_64-static": "qemu-user-static"}  # fmt: skip
LIMIT_S = 300  # for one run under emulation


def install_missing() -> None:
    missing = sorted({package for tool, package in PACKAGES.items() if not shutil.which(tool)})
    if not missing:
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        print(f"cannot install {', '.join(missing)}: that needs root and apt-get", flush=True)
        return
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "--no-install-recommends", "-y", *missing]):
        tool = ["apt-get", "-qq", *command]
        done = subprocess.run(tool, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"apt-get {command[0]} failed: {done.stderr.strip()}", flush=True)
            return


def available(*tools: str, what: str) -> bool:
    missing = [tool for tool in tools if not shutil.which(tool)]
    if missing:
        print(f"SKIPPED: {what}: no {', '.join(missing)} here", flush=True)
    return not missing


def run(*command: str | Path, **more: str) -> str:
    """The command's output; if it fails, an exit that shows it. more: variables of its environment."""
    try:
        done = subprocess.run(
            [str(word) for word in command], capture_output=True, text=True, timeout=LIMIT_S, check=False,
            env={**os.environ, **more},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise SystemExit(f"no end after {LIMIT_S} s: {' '.join(map(str, command))}") from None
    if done.returncode:
        print(done.stdout, done.stderr, sep="\n")
        raise SystemExit(f"failed with {done.returncode}: {' '.join(map(str, command))}")
    return done.stdout


def build(folder: Path, *options: str) -> None:
    """Configures and builds the native tests."""
    run("cmake", "-S", ROOT / "csrc", "-B", folder, "-G", "Ninja", "-DPYLLAMACPP_TESTS=ON", *options,
        f"-DCMAKE_MAKE_PROGRAM={shutil.which('ninja')}", f"-DPython_EXECUTABLE={sys.executable}")  # fmt: skip
    command = ["cmake", "--build", str(folder), "--target", "native_tests"]
    if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode:
        raise SystemExit(f"failed: {' '.join(command)}")


def natives(folder: Path, emulator: str, cpus: dict[str, str]) -> None:
    """All native tests on each CPU model, which must choose its level."""

    def one(job: tuple[str, str]) -> None:
        cpu, test = job
        begin = time.monotonic()
        run(emulator, "-cpu", cpu, folder / test)
        print(f"{cpu:12} {test:14} passed in {time.monotonic() - begin:.0f} s", flush=True)

    for cpu, level in cpus.items():
        chosen = run(emulator, "-cpu", cpu, folder / "test_digests", "--level").strip()
        if chosen != level:
            raise SystemExit(f"{cpu} chose {chosen}, not {level}")
        print(f"{cpu:12} chooses {level}", flush=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [(cpu, test) for test in reversed(TESTS) for cpu in cpus]
        list(pool.map(one, [job for job in jobs if job not in TOO_SLOW]))


def arm(work: Path) -> None:
    if not available("aarch64-linux-gnu-g++", "qemu-aarch64-static", what="the ARM levels"):
        return
    folder = work / "aarch64"
    build(folder, f"-DCMAKE_TOOLCHAIN_FILE={NATIVE / 'aarch64-linux-gnu.cmake'}", "-DPYLLAMACPP_WERROR=ON",
          "-DPYLLAMACPP_PYTHON=OFF")  # fmt: skip
    run("ctest", "--test-dir", folder, "-R", "isa_isolation", "--no-tests=error")
    natives(folder, "qemu-aarch64-static", ARM_CPUS)


def x86(work: Path, reuse: Path | None) -> None:
    if platform.machine() != "x86_64":
        print(f"SKIPPED: lower x86 levels: this machine is {platform.machine()}")
        return
    if not available("qemu-x86_64-static", what="lower x86 levels"):
        return
    if reuse:
        import pybind11

        build(reuse, f"-Dpybind11_DIR={pybind11.get_cmake_dir()}")
    else:
        build(work / "x86", "-DPYLLAMACPP_PYTHON=OFF")
    natives(reuse or work / "x86", "qemu-x86_64-static", X86_CPUS)
    extension(work)


def extension(work: Path) -> None:
    """The installed package, from `doctor` to an answer, against the same level run by this CPU itself."""
    if importlib.util.find_spec("pyllamacpp") is None:
        print("SKIPPED: the Python extension under emulation: pyllamacpp is not installed here")
        return
    model = work / "emulated.gguf"
    write = 'import sys, tiny; tiny.write(sys.argv[1], "llama", "Q4_K")'
    run(sys.executable, "-c", write, model, PYTHONPATH=str(ROOT / "tests"))
    package = [sys.executable, "-m", "pyllamacpp"]
    ask = [*package, "run", model, "-p", "hello", "--max-tokens", "8", "--temp", "0"]
    for cpu, level in X86_CPUS.items():
        emulator = ["qemu-x86_64-static", "-cpu", cpu]
        if f" {level} (" not in run(*emulator, *package, "doctor"):
            raise SystemExit(f"the extension does not choose {level} on {cpu}")
        answer, expected = run(*emulator, *ask), run(*ask, PYLLAMACPP_ISA=level)
        if not expected or answer != expected:
            raise SystemExit(f"on {cpu} the answer is {answer!r}, not {expected!r}")
        print(f"{cpu:12} Python extension passed", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("work", type=Path, help="folder for what is built")
    parser.add_argument("--reuse", type=Path, help="build folder of csrc/ for this machine")
    args = parser.parse_args()
    install_missing()
    arm(args.work)
    x86(args.work, args.reuse)


if __name__ == "__main__":
    main()
