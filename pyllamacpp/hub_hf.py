"""Models of the Hugging Face Hub: choosing a file, finding it in the cache, fetching it through
huggingface_hub.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import DownloadError, ModelNotFoundError
from .progress import ProgressBar

# Without a file name: the first of these that the repository has. A good small one, then simple, then
# larger ones.
PREFERENCE = (
    "Q4_K_M", "Q4_0", "Q8_0", "Q4_K_S", "Q5_K_M", "Q6_K", "Q4_1", "IQ4_NL", "IQ4_XS", "Q5_K_S",
    "Q5_0", "Q5_1", "MXFP4", "Q3_K_M", "Q2_K", "BF16", "F16", "F32",
)  # fmt: skip

_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\.gguf)", re.DOTALL)


def not_fetched(what: str) -> ModelNotFoundError:
    return ModelNotFoundError(
        f"{what} is not here, or not whole, and HF_HUB_OFFLINE forbids to fetch it",
        "Unset HF_HUB_OFFLINE and fetch it once with pyllamacpp pull; it is kept.",
    )


def group_shards(files: Iterable[str], *, projectors: bool = False) -> dict[str, list[str]]:
    """Model -> its files, of any files: a .gguf for itself, the shards of one set together and in order.

    Projectors (mmproj) are no models and left out unless asked for.
    """
    models: dict[str, list[str]] = {}
    for file in sorted(files):
        name = file.rsplit("/", 1)[-1].lower()
        if name.endswith(".gguf") and (projectors or "mmproj" not in name):
            match = _SHARD.fullmatch(file)
            models.setdefault(f"{match[1]}-*-of-{match[3]}{match[4]}" if match else file, []).append(file)
    return models


def shard_set(file: str) -> list[str]:
    """All files of the set that `file` belongs to, by their names; `[file]` if it is not a shard."""
    match = _SHARD.fullmatch(file)
    if match is None:
        return [file]
    return [f"{match[1]}-{i:05d}-of-{match[3]}{match[4]}" for i in range(1, int(match[3]) + 1)]


def is_glob(name: str) -> bool:
    return any(c in name for c in "*?[")


def matches(file: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(file, pattern) or fnmatch.fnmatchcase(file.rsplit("/", 1)[-1], pattern)


def choose(files: Iterable[str], pattern: str | None, where: str) -> list[str]:
    """The files of the one model that `pattern` means (None: by `PREFERENCE`); ModelNotFoundError if not
    just one.

    Projectors are only considered when the pattern says "mmproj".
    """
    models = group_shards(files, projectors=pattern is not None and "mmproj" in pattern.lower())
    if not models:
        raise ModelNotFoundError(f"{where} has no .gguf model")
    listing = f"It has: {', '.join(models)}."
    if pattern is not None:
        found = [m for m, parts in models.items() if any(matches(f, pattern) for f in parts)]
        if len(found) != 1:
            raise ModelNotFoundError(
                f"{where}: {pattern!r} matches {len(found) or 'no'} models"
                + (f": {', '.join(found)}" if found else ""),
                "Name one of them." if found else listing,
            )
        return models[found[0]]
    if len(models) == 1:
        return next(iter(models.values()))
    for tag in PREFERENCE:
        tagged = re.compile(rf"(?<![A-Za-z0-9]){tag}(?![A-Za-z0-9_])", re.IGNORECASE)
        found = [m for m in models if tagged.search(m.rsplit("/", 1)[-1])]
        if len(found) == 1:
            return models[found[0]]
        if found:
            break
    raise ModelNotFoundError(
        f"{where} has several models and none is the obvious one", f"{listing} Name one: hf:owner/repo:file"
    )


@dataclass(frozen=True, slots=True)
class Repository:
    """One revision of one repository: the Hub's cache (or `local_dir`) first, then the network."""

    repo_id: str
    revision: str
    token: str | None
    cache_dir: Path | None
    local_dir: Path | None
    offline: bool
    progress: bool | None

    @property
    def where(self) -> str:
        """Its name in messages."""
        return f"hf:{self.repo_id}" + ("" if self.revision == "main" else f" at revision {self.revision!r}")

    def choose(self, pattern: str | None) -> list[str]:
        """The files of the model meant by an exact name (no listing is asked for), a glob or None."""
        if pattern is not None and not is_glob(pattern):
            return shard_set(pattern)
        chosen = choose(self.files(), pattern, f"hf:{self.repo_id}")
        return shard_set(chosen[0])

    def matching(self, pattern: str) -> list[str]:
        """All files matching an exact name or a glob; at least one."""
        if not is_glob(pattern):
            return [pattern]
        found = [f for f in self.files() if matches(f, pattern)]
        if not found:
            raise ModelNotFoundError(f"hf:{self.repo_id}: no file matches {pattern!r}")
        return found

    def files(self) -> list[str]:
        """Every file of the repository, or those fetched before when offline."""
        if self.offline:
            folder = self.local_dir or self._snapshot()
            if folder is None or not folder.is_dir():
                raise not_fetched(f"hf:{self.repo_id}")
            return [p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()]
        with _readable_errors(self, None):
            from huggingface_hub import HfApi

            return HfApi().list_repo_files(self.repo_id, revision=self.revision, token=self.token)

    def cached(self, file: str) -> Path | None:
        """The file where it has been fetched. In a folder of the user's it may be of another revision."""
        folder = self.local_dir or self._snapshot()
        path = folder / file if folder is not None else None
        if path is None or not path.is_file():
            return None
        if self.local_dir is None:
            return path
        commit, asked_for = (_first_line_of(note) for note in self._notes(self.local_dir, file))
        return path if self.revision in (commit, asked_for or "main") else None

    def _notes(self, folder: Path, file: str) -> tuple[Path, Path]:
        """What is noted of a file in local_dir: its commit, by huggingface_hub, and the revision that was
        asked for, by us, unless it was main.
        """
        notes = folder / ".cache" / "huggingface" / "download"
        return notes / f"{file}.metadata", notes / f"{file}.revision"

    def fetch(self, file: str) -> Path:
        """The file on this machine."""
        if (path := self.cached(file)) is not None:
            return path
        if self.offline:
            raise not_fetched(f"{self.where}: {file}")
        with _readable_errors(self, file):
            import inspect

            from huggingface_hub import hf_hub_download

            bar: dict[str, Any] = {}
            if (
                "tqdm_class" in inspect.signature(hf_hub_download).parameters
            ):  # older versions only have their own
                bar["tqdm_class"] = _bar_class(file.rsplit("/", 1)[-1], self.progress)
            path = hf_hub_download(
                self.repo_id, file, revision=self.revision, token=self.token, cache_dir=self.cache_dir,
                local_dir=self.local_dir, **bar,
            )  # fmt: skip
        if self.local_dir is not None:
            _, note = self._notes(self.local_dir, file)
            if self.revision == "main":
                note.unlink(missing_ok=True)
            else:
                note.write_text(self.revision)
        return Path(path)

    def _snapshot(self) -> Path | None:
        """The folder of this revision in the Hub's cache, found as the cache's layout is documented.

        Asking huggingface_hub's client would import an HTTP stack first.
        """
        from huggingface_hub import constants

        repo = (self.cache_dir or Path(constants.HF_HUB_CACHE)) / f"models--{self.repo_id.replace('/', '--')}"
        try:
            commit = (repo / "refs" / self.revision).read_text().strip()
        except OSError:
            commit = self.revision
        folder = repo / "snapshots" / commit
        return folder if folder.is_dir() else None


def _first_line_of(path: Path) -> str | None:
    try:
        return path.read_text().partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError):
        return None


def _bar_class(title: str, progress: bool | None) -> type[Any]:
    """A tqdm class that keeps quiet and moves our own bar."""
    from tqdm import tqdm  # type: ignore[import-untyped, unused-ignore]

    class Bridge(tqdm):  # type: ignore[misc, type-arg, unused-ignore]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **{**kwargs, "disable": True})
            self._bar = ProgressBar(title, kwargs.get("total"), show=progress).__enter__()
            self._bar.to(kwargs.get("initial", 0))

        def update(self, n: float | None = 1) -> bool | None:
            self._bar.advance(n or 0)
            return None

        def close(self) -> None:
            if bar := self.__dict__.pop("_bar", None):
                bar.__exit__(None, None, None)
            super().close()

    return Bridge


@contextmanager
def _readable_errors(repo: Repository, file: str | None) -> Iterator[None]:
    """huggingface_hub's errors as ours: what is not there, what may not be read, what could not be
    reached.
    """
    try:
        yield
    except Exception as error:
        from huggingface_hub import errors

        where = repo.where
        if isinstance(error, errors.GatedRepoError):
            raise ModelNotFoundError(
                f"{where} asks to accept its terms first",
                f"Accept them at https://huggingface.co/{repo.repo_id}, then set HF_TOKEN or: hf auth login",
            ) from error
        if isinstance(error, errors.RepositoryNotFoundError):
            raise ModelNotFoundError(
                f"no repository {where}",
                "Check the name; for a private one log in (hf auth login) or set HF_TOKEN.",
            ) from error
        if isinstance(error, errors.RevisionNotFoundError):
            raise ModelNotFoundError(f"{where} does not exist in that revision") from error
        if isinstance(error, errors.EntryNotFoundError) and not isinstance(
            error, errors.LocalEntryNotFoundError
        ):
            names = [f for f in repo.files() if f.lower().endswith(".gguf")]
            hint = f"It has: {', '.join(names)}." if names else "It has no .gguf files."
            raise ModelNotFoundError(f"no file {file!r} in {where}", hint) from error
        # The HTTP client (which one depends on the version) lets some of its own errors through.
        client = type(error).__module__.partition(".")[0] in ("httpx", "httpx2", "requests")
        if client or isinstance(error, (OSError, errors.HfHubHTTPError)):
            raise DownloadError(
                f"{where} could not be fetched: {_first_line(error)}",
                "Check the connection and try again; HF_HUB_OFFLINE=1 uses what was fetched before.",
            ) from error
        raise


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
