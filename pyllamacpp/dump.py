"""Named intermediates of one evaluation as .npy files, and where two such dumps first differ.

A dump is a folder: attn_norm.3.npy is `attn_norm` of layer 3, (n_tokens, cols) float32, for every name in
index.json, which lists them in the order they are computed. To compare two levels, versions or machines:

    python -m pyllamacpp.dump A B [TOLERANCE]
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from . import _core
from .errors import ParameterError

if TYPE_CHECKING:
    from .llama import Llama

Values = npt.NDArray[np.float32]
_INDEX = "index.json"


def write(session: _core.Session, tokens: npt.NDArray[np.int32], folder: str | os.PathLike[str]) -> list[str]:
    """Evaluate the tokens after those that the session holds and write every intermediate; returns the names.

    Errors: ParameterError if the folder holds anything but an earlier dump, or cannot be written; as of
    `Session.eval`.
    """
    path = Path(folder)
    files: dict[str, Path] = {}

    def tap(name: str, values: Values) -> None:
        first = name not in files  # a long prompt comes in several passes, in order
        files.setdefault(name, path / f"{name}.npy")
        # Written, not mapped: on a full disk a mapped page is a SIGBUS. More files than may be open at once.
        with files[name].open("wb" if first else "ab") as file:
            if first:
                shape = (len(tokens), values.shape[1])
                header = {"descr": "<f4", "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(file, header)
            file.write(np.ascontiguousarray(values, "<f4").tobytes())

    try:
        _make_room(path)
        session.trace(tokens, tap)
        index = {"tokens": tokens.tolist(), "names": list(files)}
        (path / _INDEX).write_text(json.dumps(index) + "\n", "utf-8")
    except BaseException as error:
        for file in (*files.values(), path / _INDEX):  # half a dump would be in the way of the next
            with contextlib.suppress(OSError):
                file.unlink()
        if not isinstance(error, OSError):
            raise
        raise ParameterError(f"cannot write the dump into {path}: {error.strerror or error}") from error
    return list(files)


def write_prompt(llm: Llama, tokens: Sequence[int], folder: str | os.PathLike[str]) -> list[str]:
    """`write` for a prompt, in a session of its own. Errors: as `write`."""
    return write(llm._parts.session(len(tokens)), np.asarray(tokens, np.int32), folder)


def _make_room(path: Path) -> None:
    """A new folder, or one whose files are all an earlier dump's, which go."""
    path.mkdir(parents=True, exist_ok=True)
    held = list(path.iterdir())
    if not held:
        return
    names = {_INDEX, *(f"{name}.npy" for name in _index(path)["names"])} if (path / _INDEX).is_file() else ()
    if any(file.name not in names for file in held):
        raise ParameterError(f"{path} holds files that are no dump", "Name a new folder.")
    for file in held:
        file.unlink()


class Difference(NamedTuple):
    """One intermediate that two dumps both have."""

    name: str
    largest: float  # absolute difference; inf where one side is not a finite number and the other is another
    token: int  # where that is
    column: int
    values: tuple[float, float]
    n_rows: int  # rows with a difference beyond the tolerance


def differences(
    a: str | os.PathLike[str], b: str | os.PathLike[str], tolerance: float = 0
) -> Iterator[Difference]:
    """What differs by more than the tolerance, in the order it was computed: the first is where to look.

    Errors: ParameterError if one is no dump, or they are of different tokens, names or shapes.
    """
    one, two = _index(Path(a)), _index(Path(b))
    for key in ("tokens", "names"):
        if one[key] != two[key]:
            raise ParameterError(
                f"the dumps {a} and {b} differ in their {key}", "Dump the same prompt and model twice."
            )
    for name in one["names"]:
        found = _compare(name, _values(Path(a), name), _values(Path(b), name), tolerance)
        if found is not None:
            yield found


def _compare(name: str, x: Values, y: Values, tolerance: float) -> Difference | None:
    if x.shape != y.shape:
        raise ParameterError(f"{name} has the shape {x.shape} in one dump and {y.shape} in the other")
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(x.astype(np.float64) - y))
    apart[np.isnan(apart)] = np.inf
    beyond = apart > tolerance
    if not beyond.any():
        return None
    token, column = np.unravel_index(int(apart.argmax()), apart.shape)
    return Difference(
        name,
        float(apart[token, column]),
        int(token),
        int(column),
        (float(x[token, column]), float(y[token, column])),
        int(beyond.any(axis=1).sum()),
    )


def _index(path: Path) -> dict[str, Any]:
    try:
        index: dict[str, Any] = json.loads((path / _INDEX).read_text("utf-8"))
        if not all(isinstance(index.get(key), list) for key in ("tokens", "names")):
            raise ValueError("it lacks the names")
    except (OSError, ValueError, AttributeError) as error:
        raise ParameterError(f"{path} is no dump: {error}", "Make one with: pyllamacpp run --dump") from error
    return index


def _values(path: Path, name: str) -> Values:
    try:
        values: Values = np.load(path / f"{name}.npy", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ParameterError(f"cannot read {name} of the dump {path}: {error}") from error
    return values


def main(arguments: Sequence[str]) -> int:
    """Print what differs, the first first; 0 if nothing does, 1 if something does, 2 for wrong usage."""
    try:
        a, b, *more = arguments
        (tolerance,) = map(float, more or ["0"])
    except ValueError:
        print("usage: python -m pyllamacpp.dump A B [TOLERANCE]", file=sys.stderr)
        return 2
    found = False
    try:
        for d in differences(a, b, tolerance):
            found = True
            print(
                f"{d.name}: by up to {d.largest:.3g} (token {d.token}, column {d.column}: "
                f"{d.values[0]:.9g} and {d.values[1]:.9g}), in {d.n_rows} rows"
            )
    except ParameterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if not found:
        print("no difference" + (f" beyond {tolerance:g}" if tolerance else ""))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
