"""One tree of errors: what went wrong, an exit code for the CLI, an HTTP status for the server, a hint."""

from __future__ import annotations


class PyllamacppError(Exception):
    """Base of every error raised on purpose. `hint` says what to do about it (may be empty)."""

    exit_code = 1
    http_status = 500

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}\n{self.hint}" if self.hint else message


class ParameterError(PyllamacppError, ValueError):
    """A caller's argument is unknown, out of range or not supported yet."""

    exit_code = 2
    http_status = 400


class ContextOverflowError(ParameterError):
    """More tokens than the context holds."""


class ModelNotFoundError(PyllamacppError, FileNotFoundError):
    """No such model: not a file, not an alias, not in the repository, or offline and not in the cache."""

    exit_code = 3
    http_status = 404


class DownloadError(PyllamacppError, OSError):
    """A model could not be fetched or kept: network, index, disk, checksum."""

    exit_code = 7
    http_status = 502


class ModelFileError(PyllamacppError, ValueError):
    """The file cannot be used: not GGUF, truncated, corrupt."""

    exit_code = 4


class MissingTensorError(ModelFileError):
    """The file is whole but lacks a tensor its architecture needs."""


class TensorShapeError(ModelFileError):
    """A tensor's shape contradicts the metadata."""


class UnsupportedModelError(ModelFileError):
    """Architecture, tensor format, tokenizer or feature without an implementation here."""


class ChatTemplateError(PyllamacppError, ValueError):
    """The chat template is missing, does not parse, or refuses the conversation."""

    exit_code = 5
    http_status = 400


class ConversationRefusedError(ChatTemplateError):
    """The chat template itself refuses the conversation; the message is its own sentence."""


class MemoryLimitError(PyllamacppError, MemoryError):
    """Would not fit in the available memory; refused before allocation."""

    exit_code = 6
    http_status = 507


class InternalError(PyllamacppError):
    """A broken invariant of ours: please report it."""


_FROM_CORE: dict[str, type[PyllamacppError]] = {
    "io": ModelNotFoundError,
    "bad_file": ModelFileError,
    "missing_tensor": MissingTensorError,
    "bad_shape": TensorShapeError,
    "unsupported_model": UnsupportedModelError,
    "out_of_memory": MemoryLimitError,
    "context_overflow": ContextOverflowError,
    "bad_value": ParameterError,
    "internal": InternalError,
}


def from_core(kind: str, message: bytes, hint: bytes) -> PyllamacppError:
    """The error class of a native `ErrorKind`; names from files may be any bytes, so decoding never fails."""
    return _FROM_CORE[kind](message.decode("utf-8", "replace"), hint.decode("utf-8", "replace"))
