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
        ConversationRefusedError,
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
    from .names import (
        BaseLlamaCache,
        LlamaCache,
        LlamaGrammar,
        LlamaRAMCache,
        LlamaState,
        LogitsProcessorList,
        MinTokensLogitsProcessor,
        StoppingCriteriaList,
    )
    from .params import SamplingParams

__version__: str

__all__ = [
    "BaseLlamaCache",
    "ChatTemplateError",
    "ContextOverflowError",
    "ConversationRefusedError",
    "DownloadError",
    "InternalError",
    "Llama",
    "LlamaCache",
    "LlamaGrammar",
    "LlamaRAMCache",
    "LlamaState",
    "LogitsProcessorList",
    "MemoryLimitError",
    "MinTokensLogitsProcessor",
    "MissingTensorError",
    "ModelFileError",
    "ModelNotFoundError",
    "ParameterError",
    "PyllamacppError",
    "SamplingParams",
    "StoppingCriteriaList",
    "TensorShapeError",
    "UnsupportedModelError",
    "__version__",
    "errors",
]


_PREFIXES = ("BaseLlama", "GGML_TYPE_", "Llama", "LLAMA_", "LogitsProcessor", "MinTokens", "StoppingCriteria")


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
        value = _of_llama_cpp(name)
    globals()[name] = value
    return value


def _of_llama_cpp(name: str) -> object:
    """A class or constant that scripts import from llama_cpp; AttributeError for what there is not."""
    if name.startswith(_PREFIXES):
        from . import names

        if name in names.CONSTANTS:
            return names.CONSTANTS[name]
        if hasattr(names, name):
            return getattr(names, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
