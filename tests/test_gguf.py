"""The GGUF reader: equal to gguf-py's on good files, a typed error on every bad one."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np
import pytest
import tiny
from gguf import GGUFValueType as VT
from hypothesis import given, settings
from hypothesis import strategies as st

from pyllamacpp import _core, errors

SHARED = Path(__file__).resolve().parents[1].parent / "shared"
SCALARS = {
    VT.UINT8: ("B", [0, 255]),
    VT.INT8: ("b", [-128, 127]),
    VT.UINT16: ("H", [0, 65535]),
    VT.INT16: ("h", [-32768, 32767]),
    VT.UINT32: ("I", [0, 2**32 - 1]),
    VT.INT32: ("i", [-(2**31), 2**31 - 1]),
    VT.FLOAT32: ("f", [0.5, -1e30]),
    VT.BOOL: ("?", [True, False]),
    VT.UINT64: ("Q", [0, 2**64 - 1]),
    VT.INT64: ("q", [-(2**63), 2**63 - 1]),
    VT.FLOAT64: ("d", [0.1, -1e300]),
}


@dataclass
class Raw:
    """A GGUF file written byte by byte; remembers where each integer of its structure stands."""

    data: bytearray = field(default_factory=bytearray)
    integers: list[tuple[int, str]] = field(default_factory=list)  # offset, struct format

    def u32(self, value: int) -> Raw:
        self.integers.append((len(self.data), "<I"))
        self.data += struct.pack("<I", value)
        return self

    def u64(self, value: int) -> Raw:
        self.integers.append((len(self.data), "<Q"))
        self.data += struct.pack("<Q", value)
        return self

    def raw(self, data: bytes) -> Raw:
        self.data += data
        return self

    def text(self, text: bytes | str) -> Raw:
        text = text.encode() if isinstance(text, str) else text
        return self.u64(len(text)).raw(text)

    def header(self, n_tensors: int = 0, n_keys: int = 0, version: int = 3) -> Raw:
        return self.raw(b"GGUF").u32(version).u64(n_tensors).u64(n_keys)

    def key(self, key: bytes | str, vtype: VT | int, value: bytes = b"") -> Raw:
        return self.text(key).u32(int(vtype)).raw(value)

    def tensor(self, name: bytes | str, dims: list[int], type_id: int = 0, offset: int = 0) -> Raw:
        self.text(name).u32(len(dims))
        for dim in dims:
            self.u64(dim)
        return self.u32(type_id).u64(offset)

    def body(self, n_bytes: int, alignment: int = 32) -> Raw:
        self.data += bytes(-len(self.data) % alignment)
        return self.raw(bytes(range(256)) * (n_bytes // 256) + bytes(range(n_bytes % 256)))


def keys(n: int = 1) -> Raw:
    return Raw().header(n_keys=n)


def tensors(n: int = 1) -> Raw:
    return Raw().header(n_tensors=n)


def opened(path: Path, raw: Raw | bytes) -> _core.GgufFile:
    path.write_bytes(bytes(raw.data) if isinstance(raw, Raw) else raw)
    return _core.GgufFile(str(path))


def refused(path: Path, raw: Raw | bytes, match: str, error: type[Exception] = errors.ModelFileError) -> str:
    """Opening `raw` raises exactly `error`, naming the file, with a hint; returns the hint."""
    with pytest.raises(error, match=match) as caught:
        opened(path, raw)
    assert type(caught.value) is error
    assert str(path) in str(caught.value)
    assert isinstance(caught.value, errors.PyllamacppError)
    assert caught.value.hint
    return caught.value.hint


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.gguf"


def sample() -> Raw:
    """A small file with every kind of value and two tensors."""
    raw = Raw().header(n_tensors=2, n_keys=6)
    raw.key("general.architecture", VT.STRING).text("llama")
    raw.key("general.alignment", VT.UINT32).u32(64)
    raw.key("a.bool", VT.BOOL, b"\x01")
    raw.key("a.strings", VT.ARRAY).u32(VT.STRING).u64(3).text("x").text("").text("yz")
    raw.key("a.numbers", VT.ARRAY).u32(VT.UINT16).u64(3).raw(bytes(6))
    raw.key("a.nested", VT.ARRAY).u32(VT.ARRAY).u64(2)
    raw.u32(VT.INT8).u64(2).raw(b"\x01\x02").u32(VT.STRING).u64(1).text("n")
    raw.tensor("first", [32, 3], 2, 0).tensor("second", [5], 0, 64)
    return raw.body(64 + 20, alignment=64)


# --- good files -------------------------------------------------------------------------------------------


def test_every_scalar_type_equals_gguf_py(path: Path) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    for vtype, (_, values) in SCALARS.items():
        for i, value in enumerate(values):
            writer.add_key_value(f"{vtype.name}.{i}", value, vtype)
        writer.add_key_value(f"{vtype.name}.array", values, VT.ARRAY, vtype)
    writer.add_string("text", "grüße 🦙\0end")
    writer.add_array("texts", ["a", "", "ßx"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    ours = _core.GgufFile(str(path))
    theirs = {k: v.contents() for k, v in gguf.GGUFReader(path).fields.items() if not k.startswith("GGUF.")}
    assert list(ours.metadata) == list(theirs)
    for key, value in ours.metadata.items():
        assert (value.tolist() if isinstance(value, np.ndarray) else value) == theirs[key], key
        if key.endswith(".array"):
            assert value.dtype.name == key.split(".")[0].lower()
    assert ours.metadata["BOOL.0"] is True
    assert ours.version == 3
    assert ours.path == str(path)
    assert ours.shards == [str(path)]
    assert ours.metadata is ours.metadata


@pytest.mark.parametrize("fmt", tiny.FORMATS)
def test_tensors_equal_gguf_py(path: Path, fmt: str) -> None:
    tiny.write(path, "qwen2", fmt, tied=False)
    ours, theirs = _core.GgufFile(path), gguf.GGUFReader(path).tensors
    assert [t.name for t in ours.tensors] == [t.name for t in theirs]
    assert fmt in {t.format for t in ours.tensors}
    for mine, other in zip(ours.tensors, theirs, strict=True):
        assert mine.format == other.tensor_type.name
        assert mine.shape == tuple(other.shape.tolist())
        assert (mine.n_bytes, mine.shard) == (other.n_bytes, 0)
        data = ours.tensor(mine.name)
        assert data.dtype == np.uint8
        assert data.tobytes() == other.data.tobytes()


def test_every_type_of_gguf_py_has_its_size_here(path: Path) -> None:
    for qtype, (block, size) in gguf.GGML_QUANT_SIZES.items():
        file = opened(path, tensors().tensor("t", [block * 3, 5], int(qtype)).body(15 * size))
        (info,) = file.tensors
        assert (info.format, info.n_bytes) == (qtype.name, 15 * size)
        refused(
            path,
            tensors().tensor("t", [block * 3, 5], int(qtype)).body(15 * size - 1),
            "truncated",
        )
        if block > 1:
            raw = tensors().tensor("t", [block * 3 + 1, 5], int(qtype)).body(32 * size)
            refused(path, raw, f"whole {qtype.name} blocks")


def test_version_2_and_absent_sections(path: Path) -> None:
    assert opened(path, Raw().header(version=2)).version == 2
    file = opened(path, Raw().header())
    assert (file.metadata, file.tensors) == ({}, [])


def test_nested_arrays_scalar_tensors_and_any_bytes_as_text(path: Path) -> None:
    raw = Raw().header(n_tensors=2, n_keys=3)
    raw.key(b"k\xff", VT.STRING).text(b"\x80ok\xc3")
    raw.key("nested", VT.ARRAY).u32(VT.ARRAY).u64(3)
    raw.u32(VT.INT16).u64(2).raw(struct.pack("<2h", 5, -6)).u32(VT.STRING).u64(1).text(b"\xfe").u32(
        VT.BOOL
    ).u64(0)
    raw.key("empty", VT.ARRAY).u32(VT.STRING).u64(0)
    raw.tensor(b"s\xff", [], 0, 0).tensor("", [1, 1, 1, 2], 24, 32).body(34)
    file = opened(path, raw)
    assert file.metadata["k\udcff"] == "\udc80ok\udcc3"
    numbers, texts, nothing = file.metadata["nested"]
    assert (numbers.tolist(), texts, nothing.tolist(), nothing.dtype) == ([5, -6], ["\udcfe"], [], np.bool_)
    assert file.metadata["empty"] == []
    assert [(t.name, t.shape, t.n_bytes) for t in file.tensors] == [("s\udcff", (), 4), ("", (1, 1, 1, 2), 2)]
    assert file.tensor("s\udcff").tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("alignment", [8, 32, 64, 4096])
def test_alignment_and_bytes_after_the_data(path: Path, alignment: int) -> None:
    tiny.write(path, "llama", "Q8_0", metadata={"general.alignment": alignment})
    theirs = {t.name: t.data.tobytes() for t in gguf.GGUFReader(path).tensors}
    path.write_bytes(path.read_bytes() + b"GGUF" + bytes(range(77)))
    file = _core.GgufFile(path)
    assert {t.name: file.tensor(t.name).tobytes() for t in file.tensors} == theirs
    assert file.metadata.get("general.alignment") == alignment


def test_paths_and_lookups(tmp_path: Path) -> None:
    name = os.fsdecode(b"odd \xff \xc3\xa4.gguf")
    tiny.write(tmp_path / "plain.gguf")
    os.rename(tmp_path / "plain.gguf", tmp_path / name)
    for spelling in (tmp_path / name, str(tmp_path / name), os.fsencode(tmp_path / name)):
        assert _core.GgufFile(spelling).path == str(tmp_path / name)
    file = _core.GgufFile(tmp_path / name)
    with pytest.raises(errors.MissingTensorError, match=r"no tensor 'blk\.9\.x'"):
        file.tensor("blk.9.x")
    assert repr(file.tensors[0]).startswith("TensorInfo('token_embd.weight', F32, (64, ")


def test_large_vocabulary_reaches_python_quickly(path: Path) -> None:
    n = 262144
    tokens = [f"▁tok{i}" if i % 3 else f"t{i}" for i in range(n)]
    blob = b"".join(struct.pack("<Q", len(t.encode())) + t.encode() for t in tokens)
    raw = keys(2).key("tokenizer.ggml.tokens", VT.ARRAY).u32(VT.STRING).u64(n).raw(blob)
    raw.key("tokenizer.ggml.scores", VT.ARRAY).u32(VT.FLOAT32).u64(n).raw(bytes(4 * n))
    path.write_bytes(raw.data)
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        metadata = _core.GgufFile(path).metadata
        seconds.append(time.perf_counter() - start)
        assert metadata["tokenizer.ggml.tokens"] == tokens
    assert min(seconds) < 0.3


def test_published_vocabulary_equals_gguf_py() -> None:
    path = SHARED / "data/vocab/ggml-vocab-phi-3.gguf"
    if not path.exists():
        pytest.skip("published vocabularies are not here")
    ours = _core.GgufFile(path).metadata
    theirs = {k: v.contents() for k, v in gguf.GGUFReader(path).fields.items() if not k.startswith("GGUF.")}
    assert {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in ours.items()} == theirs


# --- truncation and mutation ------------------------------------------------------------------------------


def test_truncated_at_every_64_bytes(path: Path) -> None:
    tiny.write(path, "llama", "Q4_0", n_layer=1)
    size = path.stat().st_size
    last = max(t.data_offset + t.n_bytes for t in gguf.GGUFReader(path).tensors)
    for cut in range(size // 64 * 64, -1, -64):
        os.truncate(path, cut)
        if cut >= last:
            _core.GgufFile(path)
            continue
        with pytest.raises(errors.ModelFileError) as caught:
            _core.GgufFile(path)
        assert type(caught.value) is errors.ModelFileError
        assert "ownload" in caught.value.hint
        if cut >= 64:
            assert f"the file has {cut} bytes" in str(caught.value)


def test_every_prefix_of_a_header(path: Path) -> None:
    data = bytes(sample().data)
    assert len(opened(path, data).tensors) == 2
    for cut in range(len(data) - 1, -1, -1):
        refused(path, data[:cut], "download was cut off" if cut >= 8 else "not a GGUF|empty|header")


def mutations(raw: Raw) -> list[bytes]:
    files = []
    for offset, fmt in raw.integers:
        bits = 8 * struct.calcsize(fmt)
        for value in (0, 1, 5, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 32, 2**64 - 1):
            if value < 2**bits:
                data = bytearray(raw.data)
                struct.pack_into(fmt, data, offset, value)
                files.append(bytes(data))
    return files


OPEN_ALL = """
import resource, sys
from pathlib import Path
from pyllamacpp import _core, errors
import numpy
size = int(next(l for l in open("/proc/self/status") if l.startswith("VmSize")).split()[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (size + (64 << 20),) * 2)
refused = 0
for path in sorted(Path(sys.argv[1]).iterdir()):
    try:
        file = _core.GgufFile(path)
        file.metadata, [file.tensor(t.name) for t in file.tensors]
    except errors.ModelFileError:
        refused += 1
print(refused)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_mutated_integers_never_crash_or_allocate_much(tmp_path: Path) -> None:
    raw = sample()
    files = mutations(raw)
    assert len(raw.integers) > 40
    for i, data in enumerate(files):
        (tmp_path / f"{i:05}").write_bytes(data)
    command = [sys.executable, "-c", OPEN_ALL, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(files) * 0.8 < int(done.stdout) < len(files)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_random_mutations_open_or_are_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(sample().data)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(4, len(content) - 1))
        kind = data.draw(st.sampled_from(["set", "insert", "delete"]))
        if kind == "set":
            content[at] = data.draw(st.integers(0, 255))
        elif kind == "insert":
            content[at:at] = data.draw(st.binary(min_size=1, max_size=9))
        else:
            del content[at : at + data.draw(st.integers(1, 9))]
    path = tmp_path_factory.getbasetemp() / "mutated.gguf"
    try:
        file = opened(path, bytes(content))
    except errors.ModelFileError:
        return
    assert isinstance(file.metadata, dict)
    for info in file.tensors:
        assert len(file.tensor(info.name)) == info.n_bytes <= len(content)


# --- bad headers ------------------------------------------------------------------------------------------

BAD_HEADERS: dict[str, tuple[Raw, str]] = {
    "too many keys": (keys(2**40).raw(bytes(64)), "remain"),
    "more keys than 2^64 bytes": (keys(2**63).raw(bytes(64)), r"2\^64"),
    "too many tensors": (tensors(2**58).raw(bytes(64)), "remain"),
    "a key longer than the file": (keys().u64(2**50).raw(bytes(64)), "entry 0 .*1125899906842624"),
    "an array longer than the file": (
        keys().key("k", VT.ARRAY).u32(VT.FLOAT64).u64(2**61).raw(bytes(64)), "'k'.*2.64"),
    "too many strings": (keys().key("k", VT.ARRAY).u32(VT.STRING).u64(9).raw(bytes(64)), "'k'"),
    "unknown value type": (keys().key("k", 13, bytes(8)), "unknown value type 13"),
    "unknown element type": (keys().key("k", VT.ARRAY).u32(99).u64(0), "unknown value type 99"),
    "a bool of 2": (keys().key("k", VT.BOOL, b"\x02"), "a bool is 2"),
    "a bool of 3 in an array": (
        keys().key("k", VT.ARRAY).u32(VT.BOOL).u64(2).raw(b"\1\3"), "a bool is 3"),
    "a key twice": (keys(2).key("k", VT.UINT8, b"1").key("k", VT.INT8, b"1"), "appears twice"),
    "a tensor twice": (
        tensors(2).tensor("t", [8]).tensor("t", [8], offset=32).body(64), "'t'.*appears twice"),
    "five dimensions": (tensors().tensor("t", [1] * 5).body(32), "5 dimensions"),
    "a dimension of 0": (tensors().tensor("t", [4, 0]).body(32), "dimension 1 is 0"),
    "a negative dimension": (tensors().tensor("t", [2**64 - 4]).body(32), "dimension 0 is"),
    "2^64 weights": (tensors().tensor("t", [2**32, 2**32]).body(32), r"2\^63 weights"),
    "weights that wrap to 1": (
        tensors().tensor("t", [641, 6700417, 2**32 + 1]).body(32), r"2\^63 weights|truncated"),
    "bytes that wrap to 0": (tensors().tensor("t", [2**62], 0).body(32), r"2\^64 bytes"),
    "past the end": (tensors().tensor("t", [8], offset=32).body(32), "'t'"),
    "an offset of 2^64 - 32": (tensors().tensor("t", [8], offset=2**64 - 32).body(32), r"2\^64"),
    "an offset off the alignment": (tensors().tensor("t", [8], offset=8).body(64), "alignment 32"),
    "sizes that sum to 2^64 and a little": (
        tensors(3).tensor("a", [2**61 - 8]).tensor("b", [2**61], offset=2**63 - 32)
        .tensor("c", [16], offset=2**64 - 32).body(96), r"'b' ends beyond 2\^64"),
    "overlap": (
        tensors(2).tensor("a", [9]).tensor("b", [8], offset=32).body(64), "'a' and tensor 'b' overlap"),
    "the same place": (tensors(2).tensor("a", [8]).tensor("b", [8]).body(64), "overlap"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_HEADERS)
def test_bad_header(path: Path, case: str) -> None:
    raw, match = BAD_HEADERS[case]
    refused(path, raw, match)


def test_arrays_nest_to_a_limit(path: Path) -> None:
    def nested(depth: int) -> Raw:
        raw = keys().key("k", VT.ARRAY)
        for _ in range(depth - 1):
            raw.u32(VT.ARRAY).u64(1)
        return raw.u32(VT.INT8).u64(1).raw(b"\x07")

    value = opened(path, nested(4)).metadata["k"]
    for _ in range(3):
        (value,) = value
    assert value.tolist() == [7]
    refused(path, nested(5), "nested deeper than 4")
    refused(path, nested(100000), "nested deeper than 4")


@pytest.mark.parametrize("alignment", [0, 1, 4, 12, 33, 2**21, 2**31, 2**32 - 1])
def test_bad_alignment(path: Path, alignment: int) -> None:
    raw = keys().key("general.alignment", VT.UINT32).u32(alignment)
    refused(path, raw, f"general.alignment is {alignment};")


def test_alignment_of_another_type(path: Path) -> None:
    refused(
        path,
        keys().key("general.alignment", VT.UINT64).u64(32),
        "type uint64; expected uint32",
    )


def test_unknown_tensor_type_is_named(path: Path) -> None:
    raw = tensors().tensor("odd.weight", [32], 4711).body(32)
    refused(path, raw, "'odd.weight' has unknown type id 4711", errors.UnsupportedModelError)


@pytest.mark.parametrize("version", [0, 1, 4, 99])
def test_unsupported_version(path: Path, version: int) -> None:
    refused(path, Raw().header(version=version), f"version {version}")


def test_big_endian(path: Path) -> None:
    writer = gguf.GGUFWriter(path, "llama", endianess=gguf.GGUFEndian.BIG)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    refused(path, path.read_bytes(), "big-endian")


# --- files of another kind --------------------------------------------------------------------------------

HTML = b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>"
OTHER_FILES: dict[str, tuple[bytes, str, str]] = {
    "empty": (b"", "is empty", "again"),
    "html": (HTML, "web page", "resolve/main"),
    "html after a BOM": (b"\xef\xbb\xbf\r\n  " + HTML.lower(), "web page", "resolve/main"),
    "xml": (b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>', "XML", "again"),
    "json": (b'{"error":"Entry not found"}', "JSON", "again"),
    "lfs": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
        "Git-LFS pointer",
        "git lfs pull",
    ),
    "safetensors": (struct.pack("<Q", 70) + b'{"__metadata__":{}}', "safetensors", "Convert"),
    "ggml": (struct.pack("<II", 0x67676D6C, 1), "old GGML", "convert"),
    "ggmf": (struct.pack("<II", 0x67676D66, 1), "old GGML", "convert"),
    "ggjt": (struct.pack("<II", 0x67676A74, 3), "old GGML", "convert"),
    "ggla": (struct.pack("<II", 0x67676C61, 1), "GGLA adapter", "convert"),
    "pytorch": (b"PK\x03\x04" + bytes(60), "zip archive", "Convert"),
    "pickle": (b"\x80\x02}q\x00.", "pickled", "Convert"),
    "xz": (b"\xfd7zXZ\x00" + bytes(20), "archive", "Unpack"),
    "gzip": (b"\x1f\x8b\x08" + bytes(20), "archive", "Unpack"),
    "tar": (b"name" + bytes(253) + b"ustar\x0000", "archive", "Unpack"),
    "llamafile": (b"MZqFpD='\n" + bytes(99), "llamafile", "plain .gguf"),
    "zeros": (bytes(5000), "zeros", "again"),
    "noise": (b"\x12\x34" * 99, "not a GGUF file", "again"),
    "two bytes of it": (b"GG", "not a GGUF file", "again"),
}


@pytest.mark.parametrize("kind", OTHER_FILES)
def test_other_file_is_recognized(path: Path, kind: str) -> None:
    data, what, todo = OTHER_FILES[kind]
    assert todo in refused(path, data, what)


@pytest.mark.parametrize(
    ("name", "pieces", "whole"),
    [
        ("m.gguf.part1of2", "m.gguf.part*of2", "m.gguf"),
        ("m.gguf.part2of2", "m.gguf.part*of2", "m.gguf"),
        ("m.gguf.part00", "m.gguf.part*", "m.gguf"),
        ("m.part-aa", "m.part-*", "m.gguf"),
        ("m.gguf-split-a", "m.gguf-split-*", "m.gguf"),
        ("m.gguf.001", "m.gguf.*", "m.gguf"),
        ("m.gguf.aa", "m.gguf.*", "m.gguf"),
        ("a.part7.gguf.partaa", "a.part7.gguf.part*", "a.part7.gguf"),
    ],
)
def test_pieces_of_a_cut_file_say_how_to_join(tmp_path: Path, name: str, pieces: str, whole: str) -> None:
    data = bytes(sample().data)
    for piece in (data[:200], data[200:]):  # the first has the magic and is truncated, the second is no GGUF
        hint = refused(tmp_path / name, piece, "truncated|not a GGUF|remain")
        assert f"cat {pieces} > {whole} " in hint
    assert len(opened(tmp_path / name, data).tensors) == 2  # a whole file may have any name


@pytest.mark.parametrize(
    "name", ["m.gguf", "m.bin", "m.v2", "m.part", "m.aa", "part1of2.gguf", "m.2024", ".001"]
)
def test_ordinary_names_are_not_taken_for_pieces(tmp_path: Path, name: str) -> None:
    assert "join" not in refused(tmp_path / name, b"noise", "not a GGUF")


def test_what_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("secret").write_bytes(b"GGUF")
    Path("secret").chmod(0)
    cases = {"none": "No such file", ".": "directory", "pipe": "not a regular file", "a\0b": "zero byte"}
    if os.geteuid() != 0:
        cases["secret"] = "Permission denied"
    for name, match in cases.items():
        with pytest.raises(errors.ModelNotFoundError, match=match):
            _core.GgufFile(name)


# --- split models -----------------------------------------------------------------------------------------


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    tiny.write(tmp_path / "whole.gguf", "llama", "Q8_0")
    tiny.write(tmp_path / "m.gguf", "llama", "Q8_0", tensors_per_shard=8)
    found = sorted(tmp_path.glob("m-*.gguf"))
    assert [p.name for p in found] == [f"m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    return found


def test_any_shard_opens_the_set(shards: list[Path]) -> None:
    whole = _core.GgufFile(shards[0].with_name("whole.gguf"))
    for shard in shards:
        file = _core.GgufFile(shard)
        assert file.path == str(shard)
        assert file.shards == [str(s) for s in shards]
        assert file.metadata["tokenizer.ggml.tokens"] == whole.metadata["tokenizer.ggml.tokens"]
        assert [t.name for t in file.tensors] == [t.name for t in whole.tensors]
        assert [t.shard for t in file.tensors] == sorted(t.shard for t in file.tensors)
        assert {t.shard for t in file.tensors} == {0, 1, 2}
        for info in whole.tensors:
            assert file.tensor(info.name).tobytes() == whole.tensor(info.name).tobytes()


def test_missing_shards_are_listed(shards: list[Path]) -> None:
    shards[0].unlink()
    shards[2].unlink()
    with pytest.raises(errors.ModelNotFoundError) as caught:
        _core.GgufFile(shards[1])
    assert "shard 2 of 3" in str(caught.value)
    assert all((str(s) in str(caught.value).split("missing:")[1]) == (s != shards[1]) for s in shards)


def test_shards_that_do_not_belong_together(shards: list[Path], tmp_path: Path) -> None:
    third = shards[2].read_bytes()
    refused(tmp_path / "renamed.gguf", third, "is shard 3 of 3")
    refused(tmp_path / "m-00002-of-00004.gguf", third, "its name is not")
    shards[2].write_bytes(shards[1].read_bytes())  # a duplicate in the third's place
    with pytest.raises(errors.ModelFileError, match=r"m-00003-of-00003.* does not belong"):
        _core.GgufFile(shards[0])
    other = tiny.write(tmp_path / "other.gguf", "llama", "Q8_0", tensors_per_shard=8, extra={"x": np.ones(3)})
    shards[2].write_bytes(other.with_name("other-00003-of-00003.gguf").read_bytes())
    with pytest.raises(errors.ModelFileError, match="does not belong"):
        _core.GgufFile(shards[0])
    shards[2].write_bytes(third[:5000])
    with pytest.raises(errors.ModelFileError, match=r"m-00003-of-00003.*truncated"):
        _core.GgufFile(shards[0])


def split_raw(no: int, count: int, n_tensors: int, *tensors: str) -> Raw:
    raw = Raw().header(n_tensors=len(tensors), n_keys=3)
    raw.key("split.no", VT.UINT16, struct.pack("<H", no)).key(
        "split.count", VT.UINT16, struct.pack("<H", count)
    )
    raw.key("split.tensors.count", VT.INT32, struct.pack("<i", n_tensors))
    for i, name in enumerate(tensors):
        raw.tensor(name, [8], offset=32 * i)
    return raw.body(32 * len(tensors))


def test_duplicate_tensors_and_wrong_counts_across_shards(tmp_path: Path) -> None:
    first, second = tmp_path / "s-00001-of-00002.gguf", tmp_path / "s-00002-of-00002.gguf"
    second.write_bytes(split_raw(1, 2, 2, "b").data)
    assert [t.name for t in opened(first, split_raw(0, 2, 2, "a")).tensors] == ["a", "b"]
    refused(first, split_raw(0, 2, 2, "a", "c"), "hold 3 tensors, but split.tensors.count is 2")
    second.write_bytes(split_raw(1, 2, 2, "a").data)
    with pytest.raises(errors.ModelFileError, match="'a' is in another shard too"):
        _core.GgufFile(first)
    for no, count in ((2, 2), (0, 65535), (7, 1)):
        with pytest.raises(errors.PyllamacppError, match=r"split\.no|missing|its name"):
            opened(first, split_raw(no, count, 1, "a"))
    refused(
        tmp_path / "x.gguf",
        keys().key("split.count", VT.STRING).text("2"),
        "expected an integer",
    )
