"""Run GGUF language models on your own machine.

    from pyllamacpp import Llama

    llm = Llama("smollm2")
    print(llm("The sky is blue because", max_tokens=32)["choices"][0]["text"])

Names are imported when first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from . import errors

TYPE_CHECKING = False  # typing itself would be half of the import time

if TYPE_CHECKING:
    from .errors import (
        ChatTemplateError,
        ContextOverflowError,
        DownloadError,
        InternalError,
        MemoryLimitError,
        MissingTensorError,
        ModelFileError,
        ModelNotFoundError,
        ParameterError,
        PyllamacppError,
        TensorShapeError,
        UnsupportedModelError,
    )
    from .llama import Llama
    from .params import SamplingParams

__version__: str

__all__ = [
    "ChatTemplateError",
    "ContextOverflowError",
    "DownloadError",
    "InternalError",
    "Llama",
    "MemoryLimitError",
    "MissingTensorError",
    "ModelFileError",
    "ModelNotFoundError",
    "ParameterError",
    "PyllamacppError",
    "SamplingParams",
    "TensorShapeError",
    "UnsupportedModelError",
    "__version__",
    "errors",
]


def _version() -> str:
    """The installed distribution's; a bare checkout has none."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("pyllamacpp")
    except PackageNotFoundError:
        return "0+unknown"


def __getattr__(name: str) -> object:
    value: object
    if name == "Llama":
        from .llama import Llama as value
    elif name == "SamplingParams":
        from .params import SamplingParams as value
    elif name == "__version__":
        value = _version()
    elif name.endswith("Error") and hasattr(errors, name):
        value = getattr(errors, name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
