"""Dumped intermediates are those of the evaluation, and the comparison finds the first that differs."""

from __future__ import annotations

import json
import resource
import signal
from pathlib import Path

import numpy as np
import pytest
import tiny
from typer.testing import CliRunner

from pyllamacpp import Llama, _core, dump
from pyllamacpp.cli import app
from pyllamacpp.cli import run as run_module
from pyllamacpp.errors import ParameterError

IDS = ((np.arange(40) * 37 + 11) % 290).astype(np.int32)


def session(path: Path, n_ctx: int = 64, isa: str = "") -> _core.Session:
    return _core.Session(_core.Model(_core.GgufFile(path), n_threads=1, isa=isa), n_ctx)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("dump") / "m.gguf", "qwen3", "F32", tied=False)


def test_intermediates_follow_from_each_other(path: Path, tmp_path: Path) -> None:
    names = dump.write(session(path), IDS, tmp_path)
    got = {name: np.load(tmp_path / f"{name}.npy") for name in names}
    file = _core.GgufFile(path)

    def weight(name: str) -> np.ndarray:
        shape = next(t.shape for t in file.tensors if t.name == name)
        return file.tensor(name).view(np.float32).reshape(shape[::-1])

    def normed(x: np.ndarray, w: str) -> np.ndarray:
        eps = file.metadata["qwen3.attention.layer_norm_rms_epsilon"]
        return x / np.sqrt((x**2).mean(1, keepdims=True) + eps) * weight(w)

    close = {"rtol": 1e-4, "atol": 1e-4}
    np.testing.assert_array_equal(got["embd"], weight("token_embd.weight")[IDS])
    for il in range(2):
        x = got["embd"] if il == 0 else got["layer_out.0"]
        np.testing.assert_allclose(got[f"attn_norm.{il}"], normed(x, f"blk.{il}.attn_norm.weight"), **close)
        for part in "qkv":
            projected = got[f"attn_norm.{il}"] @ weight(f"blk.{il}.attn_{part}.weight").T
            np.testing.assert_allclose(got[f"{part}.{il}"], projected, **close)
        out = got[f"attn.{il}"] @ weight(f"blk.{il}.attn_output.weight").T
        np.testing.assert_allclose(got[f"attn_out.{il}"], out, **close)
        middle = x + got[f"attn_out.{il}"]
        np.testing.assert_allclose(
            got[f"ffn_norm.{il}"], normed(middle, f"blk.{il}.ffn_norm.weight"), **close
        )
        np.testing.assert_allclose(got[f"layer_out.{il}"], middle + got[f"ffn_out.{il}"], **close)
        assert not np.array_equal(got[f"q.{il}"], got[f"q_rope.{il}"])
    np.testing.assert_allclose(got["output_norm"], normed(got["layer_out.1"], "output_norm.weight"), **close)
    np.testing.assert_array_equal(got["logits"], session(path).eval(IDS, "all"))
    assert json.loads((tmp_path / "index.json").read_text()) == {"tokens": IDS.tolist(), "names": names}


def test_long_prompts_and_experts(tmp_path: Path) -> None:
    model = tiny.write(tmp_path / "moe.gguf", "qwen2moe", "Q4_0", n_ctx=2048)
    ids = np.tile(IDS, 20)  # more than one pass
    names = dump.write(session(model, len(ids)), ids, tmp_path / "dump")
    got = {name: np.load(tmp_path / "dump" / f"{name}.npy") for name in names}
    assert {len(values) for values in got.values()} == {len(ids)}
    chosen = got["experts.0"]
    assert chosen.shape[1] > 1
    assert all(len(set(row)) == chosen.shape[1] for row in chosen)
    assert got["expert_weights.0"].shape[1] == chosen.shape[1] + 1  # the shared expert's last
    np.testing.assert_array_equal(got["logits"], session(model, len(ids)).eval(ids, "all"))


def test_finds_the_first_difference(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    dump.write(session(path), IDS, a)
    dump.write(session(path, isa="avx2" if "avx2" in _core.cpu_info()["levels"] else ""), IDS, b)
    assert dump.main([a, b]) == 0
    assert "no difference" in capsys.readouterr().out
    for name, by in (("ffn_norm.1", 1.0), ("k.0", 0.5)):
        values = np.load(tmp_path / "b" / f"{name}.npy")
        values[7, 3] += by
        np.save(tmp_path / "b" / f"{name}.npy", values)
    assert dump.main([a, b]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["k.0", "ffn_norm.1"]
    assert "token 7, column 3" in lines[0]
    assert "in 1 rows" in lines[0]
    assert dump.main([a, b, "0.75"]) == 1
    assert capsys.readouterr().out.startswith("ffn_norm.1:")
    assert dump.main([a, b, "2"]) == 0


def test_numbers_that_are_none_differ_from_others(path: Path, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        dump.write(session(path), IDS, tmp_path / folder)
    values = np.load(tmp_path / "a" / "v.0.npy")
    values[0, 0], values[1, 1] = np.nan, np.inf
    np.save(tmp_path / "a" / "v.0.npy", values)
    (found,) = dump.differences(tmp_path / "a", tmp_path / "b", tolerance=1e9)
    assert (found.name, found.largest, found.n_rows) == ("v.0", np.inf, 2)
    np.save(tmp_path / "b" / "v.0.npy", values)
    assert not list(dump.differences(tmp_path / "a", tmp_path / "b"))


def test_what_is_no_dump_is_an_error(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.npy").write_text("mine")
    with pytest.raises(ParameterError, match="no dump"):
        dump.write(session(path), IDS, tmp_path / "other")
    assert (tmp_path / "other" / "thesis.npy").read_text() == "mine"
    with pytest.raises(ParameterError, match="cannot write"):
        dump.write(session(path), IDS, tmp_path / "other" / "thesis.npy" / "x")
    for folder in ("a", "b"):
        dump.write(session(path), IDS[: 3 if folder == "a" else 4], tmp_path / folder)
    assert dump.main([str(tmp_path / "a"), str(tmp_path / "b")]) == 2
    assert "differ in their tokens" in capsys.readouterr().err
    assert dump.main([str(tmp_path / "a"), str(tmp_path / "nowhere")]) == 2
    assert dump.main(["a"]) == 2


def test_an_error_in_the_tap_leaves_the_session_as_it_was(path: Path) -> None:
    s = session(path)
    s.eval(IDS[:5])

    def tap(name: str, values: np.ndarray) -> None:
        if name == "q.1":
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        s.trace(IDS[5:9], tap)
    assert s.n_tokens == 5
    np.testing.assert_array_equal(s.eval(IDS[5:9]), session(path).eval(IDS[:9]))


def test_from_the_command_line(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module.select, "select", lambda *a: ([1], [], []))
    chat = tiny.write(tmp_path / "m.gguf", "llama", "Q4_0")
    for folder, raw in (("chat", []), ("raw", ["--raw"]), ("again", ["--raw"])):
        arguments = ["run", str(chat), "-p", "the sun", "--dump", str(tmp_path / folder), *raw]
        result = CliRunner().invoke(app, arguments, input="")
        assert (result.exit_code, result.stdout) == (0, ""), result.stderr
    with Llama(chat, verbose=False) as llm:
        raw_ids = llm.tokenize(b"the sun", special=True)
    assert json.loads((tmp_path / "raw" / "index.json").read_text())["tokens"] == raw_ids
    assert len(json.loads((tmp_path / "chat" / "index.json").read_text())["tokens"]) > len(raw_ids)
    assert dump.main([str(tmp_path / "raw"), str(tmp_path / "again")]) == 0
    assert dump.main([str(tmp_path / "raw"), str(tmp_path / "chat")]) == 2


def test_a_dump_that_fails_leaves_nothing(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a full disk, which no mapped file may meet: RLIMIT_FSIZE stands in for it."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, old[1]))
        with pytest.raises(ParameterError, match="cannot write the dump into"):
            dump.write(session(path), IDS, tmp_path / "a")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)
    assert list((tmp_path / "a").iterdir()) == []

    def stop(file: object, header: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(np.lib.format, "write_array_header_1_0", stop)
        dump.write(session(path), IDS, tmp_path / "a")
    assert dump.write(session(path), IDS, tmp_path / "a")


def test_other_files_are_not_removed(path: Path, tmp_path: Path) -> None:
    dump.write(session(path), IDS, tmp_path / "a")
    (tmp_path / "a" / "mine.npy").write_bytes(b"mine")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "index.json").write_text("{}")
    (tmp_path / "b" / "mine.npy").write_bytes(b"mine")
    for name in "ab":
        with pytest.raises(ParameterError, match="no dump"):
            dump.write(session(path), IDS, tmp_path / name)
        assert (tmp_path / name / "mine.npy").read_bytes() == b"mine"
    assert (tmp_path / "a" / "logits.npy").exists()
