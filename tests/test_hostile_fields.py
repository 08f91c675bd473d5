"""Every integer of a model file set to every awkward value: an error of one sentence or a model that works,
within a second and little memory."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from gguf import GGUFValueType as VT

SHAPE = tiny.Shape(n_embd=8, n_layer=1, n_ff=8, n_head=2, n_head_kv=1, head_dim=8)
FORMATS = {
    VT.UINT8: "<B", VT.INT8: "<b", VT.UINT16: "<H", VT.INT16: "<h", VT.UINT32: "<I", VT.INT32: "<i",
    VT.FLOAT32: "<f", VT.BOOL: "<B", VT.UINT64: "<Q", VT.INT64: "<q", VT.FLOAT64: "<d",
}  # fmt: skip
POWERS = (2**7, 2**8, 2**15, 2**16, 2**31, 2**32, 2**63, 2**64)
INTEGERS = sorted({0, 1, 2, 3, 7, 33, 2**62, *POWERS, *(p - 1 for p in POWERS), *(p + 1 for p in POWERS)})
FLOATS = (0.0, -0.0, 1e-45, 1e-39, -1.0, 1e38, float("inf"), float("-inf"), float("nan"))

Field = tuple[int, str, str]  # offset, struct format, name


class Walk:
    """The integers (and floats) of a GGUF file, found by reading it as the specification says."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 4
        self.fields: list[Field] = []
        self.take("<I", "version")
        n_tensors, n_keys = self.take("<Q", "n_tensors"), self.take("<Q", "n_keys")
        for _ in range(n_keys):
            key = self.text("key").decode()
            self.value(VT(self.take("<I", f"type of {key}")), key)
        for i in range(n_tensors):
            name = self.text(f"name {i}").decode()
            for dim in range(self.take("<I", f"n_dims of {name}")):
                self.take("<Q", f"dim {dim} of {name}")
            self.take("<I", f"format of {name}")
            self.take("<Q", f"offset of {name}")

    def take(self, form: str, name: str) -> Any:
        self.fields.append((self.at, form, name))
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def text(self, name: str) -> bytes:
        n = self.take("<Q", f"length of {name}")
        self.at += n
        return self.data[self.at - n : self.at]

    def value(self, kind: VT, name: str) -> None:
        if kind == VT.STRING:
            self.text(name)
        elif kind == VT.ARRAY:
            items = VT(self.take("<I", f"item type of {name}"))
            n = self.take("<Q", f"count of {name}")
            for i in range(n):
                self.value(items, f"{name}[{i}]")
                if 1 < i < n - 2:  # the ends stand for all
                    self.fields.pop()
        else:
            self.take(FORMATS[kind], name)


def mutations(data: bytes) -> Iterator[tuple[int, bytes, str]]:
    """(offset, bytes to put there, what that is)"""
    for offset, form, name in Walk(data).fields:
        bits = 8 * struct.calcsize(form)
        values: list[Any] = list(FLOATS) if form in ("<f", "<d") else [v for v in INTEGERS if v < 2**bits]
        if form == "<Q" and name.startswith("offset"):
            values += [8, 32, 2**64 - 32, 2**63 - 32]
        for value in values:
            unsigned = isinstance(value, int)
            yield offset, struct.pack(form.upper() if unsigned else form, value), f"{name} = {value}"


LOAD_ALL = """
import json, resource, sys, time, warnings
from pathlib import Path
import numpy as np
from pyllamacpp import _core, errors
from pyllamacpp.text.chat import ChatTemplate
from pyllamacpp.text.tokenizer import Tokenizer

data, path = Path(sys.argv[1]).read_bytes(), Path(sys.argv[2])
warnings.simplefilter("ignore")

def use():
    file = _core.GgufFile(path)
    file.metadata, [file.tensor(info.name) for info in file.tensors]
    _core.plan_context(file, 8)
    if "tokenizer.ggml.model" in file.metadata:
        tokenizer = Tokenizer.from_metadata(file.metadata)
        ids = tokenizer.with_bos(tokenizer.encode("the <|im_end|> \\0 \\u00e4", special=True))
        tokenizer.decode_bytes(ids), tokenizer.eog_ids
        ChatTemplate.from_metadata(file.metadata, tokenizer)
    model = _core.Model(file, n_threads=1)
    n = min(4, model.n_vocab)
    logits = _core.Session(model, 4).eval(np.arange(n, dtype=np.int32), "all")
    assert np.isfinite(logits).all() or what.startswith("format of"), "not finite"  # floats read as halves

path.write_bytes(data)
what = "the whole file"
use()
size = int(next(l for l in open("/proc/self/status") if l.startswith("VmSize")).split()[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (size + (512 << 20),) * 2)  # a model takes 64 MiB arenas, untouched
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
outcomes = {"loaded": 0, "refused": 0}
for offset, hexadecimal, what in json.load(sys.stdin):
    content = bytes.fromhex(hexadecimal)
    with open(path, "r+b") as file:
        file.seek(offset), file.write(content)
    started = time.process_time()
    try:
        use()
        outcomes["loaded"] += 1
    except errors.PyllamacppError as error:
        outcomes["refused"] += 1
        if not error.args[0] or "\\n" in error.args[0]:
            print(f"{what}: not one sentence: {error}")
    except BaseException as error:
        print(f"{what}: {type(error).__name__}: {error}")
    seconds = time.process_time() - started
    if seconds > 1:
        print(f"{what}: {seconds} s")
    with open(path, "r+b") as file:
        file.seek(offset), file.write(data[offset : offset + len(content)])
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
if grown > 48 << 10:
    print(f"memory grew by {grown >> 10} MiB")
print(json.dumps(outcomes))
"""

WIDE = {  # as 64-bit integers, so that every power fits
    "context_length": 64, "embedding_length": 8, "block_count": 1, "feed_forward_length": 8,
    "attention.head_count": 2, "attention.head_count_kv": 1, "attention.key_length": 8,
    "attention.value_length": 8, "rope.dimension_count": 8,
}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    "llama": {
        "arch": "llama",
        "vocab": "bpe",
        "keys": {
            "general.alignment": 32, "llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0,
            "llama.rope.scaling.original_context_length": np.int64(16), "llama.attention.scale": 0.5,
            "llama.rope.scaling.attn_factor": 1.0, "llama.rope.scaling.yarn_beta_fast": 32.0,
            "tokenizer.ggml.eot_token_id": 5, "tokenizer.ggml.padding_token_id": np.uint64(6),
            "tokenizer.ggml.fim_pre_token_id": np.int32(7), "split.no": np.uint16(0),
            "split.count": np.uint16(1), "split.tensors.count": np.int32(-1), "llama.logit_scale": 1.0,
        },
    },
    "gemma3": {
        "arch": "gemma3",
        "vocab": "spm",
        "keys": {
            "gemma3.attention.sliding_window": np.uint64(4), "gemma3.rope.freq_base_swa": 1000.0,
            "gemma3.attention.sliding_window_pattern": np.uint64(2), "gemma3.final_logit_softcapping": 30.0,
            "tokenizer.ggml.seperator_token_id": 3, "tokenizer.ggml.eom_token_id": np.int64(4),
        },
    },
    "qwen2moe": {
        "arch": "qwen2moe",
        "vocab": None,
        "keys": {"tokenizer.ggml.tokens": ["a", "b", "c"], "qwen2moe.expert_group_count": np.uint64(1)},
    },
    "gpt2": {"arch": "gpt2", "vocab": None, "keys": {}},
}  # fmt: skip


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.parametrize("name", MODELS)
def test_every_integer_of_a_model(tmp_path: Path, name: str) -> None:
    case = MODELS[name]
    arch, vocab = case["arch"], case["vocab"]
    tokenizer = {"bpe": tiny.bpe_vocab, "spm": tiny.spm_vocab, None: dict}[vocab]()
    n_vocab = len(tokenizer.get("tokenizer.ggml.tokens", range(3)))
    wide = {f"{arch}.{key}": np.uint64(value) for key, value in WIDE.items()}
    metadata = {**wide, **case["keys"]}
    if vocab == "bpe":
        metadata["tokenizer.ggml.token_type"] = np.array(tokenizer["tokenizer.ggml.token_type"], np.int32)
    shapes = {"token_embd.weight": (n_vocab, 8), "position_embd.weight": (64, 8)}
    path = tmp_path / "whole.gguf"
    tiny.write(path, arch, shape=SHAPE, vocab=vocab, metadata=metadata, reshape=shapes, tied=True)
    cases = [(at, data.hex(), what) for at, data, what in mutations(path.read_bytes())]
    command = [sys.executable, "-c", LOAD_ALL, str(path), str(tmp_path / "mutated.gguf")]
    done = subprocess.run(
        command, input=json.dumps(cases), capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    *findings, outcomes = done.stdout.splitlines()
    assert findings == []
    assert sum(json.loads(outcomes).values()) == len(cases) > 1000
    assert all(n > 40 for n in json.loads(outcomes).values())
