"""`bench`: what it counts, by hand for tiny models; what it prints and refuses. Nothing here is timed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import tiny
from terminal import ROOT
from typer.testing import CliRunner, Result

from pyllamacpp import _core
from pyllamacpp import bench as bench_module
from pyllamacpp.bench import Bench, BenchParams, BenchTest, Cost, Row, cost, last_cache_bytes
from pyllamacpp.cli import app
from pyllamacpp.errors import MemoryLimitError, ParameterError


@pytest.fixture(autouse=True)
def brief_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of a small memory: its size changes no arithmetic."""
    monkeypatch.setattr(bench_module, "_LARGEST_READ", 1 << 20)
    monkeypatch.setattr(bench_module, "last_cache_bytes", lambda: 0)
    monkeypatch.setattr(bench_module, "_SECONDS_OF_READING", 0.0)
    monkeypatch.setattr(bench_module, "_SECONDS_OF_A_PEAK", 0.0)


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "m.gguf"
    tiny.write(path, "llama", "Q4_0")
    return str(path)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", *arguments])


# ---- limits -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", _core.levels())
@pytest.mark.parametrize("n_threads", [1, 3])
def test_every_pattern_reads_every_byte_once(level: str, n_threads: int) -> None:
    limits = _core.Limits(level, n_threads)
    rng = np.random.default_rng(0)
    for pages in (1, 3, 40, 1100):  # less than a page a thread, uneven shares, more than one item a thread
        data = rng.integers(0, 256, pages * 4096, dtype=np.uint8)
        want = int(data.view(np.uint32).sum(dtype=np.uint64)) & 0xFFFFFFFF
        for pattern in range(len(limits.patterns)):
            assert limits.sum(pattern, data) == want, (pages, pattern)


@pytest.mark.parametrize("level", _core.levels())
def test_products_are_computed_as_many_as_are_counted(level: str) -> None:
    """All factors are one, so the sums that the loops return are the products they added."""
    for kind in ("int8", "f32", "bf16"):
        one, two = _core.Limits(level, 1), _core.Limits(level, 2)
        a_round = one.count(kind, 1)
        assert one.count(kind, 0) == 0
        assert one.count(kind, 1000) == 1000 * a_round
        assert two.count(kind, 1000) == 2 * one.count(kind, 1000)
        has = kind != "bf16" or {"avx512bf16", "bf16"} & set(_core.cpu_info()["features"])
        assert (a_round > 0) == bool(has)
        assert (one.peak(kind, seconds=0) > 0) == bool(has)


def test_limits_refuse_what_they_cannot_do() -> None:
    limits = _core.Limits("", 1)
    with pytest.raises(ParameterError, match="not of 'int4'"):
        limits.count("int4", 1)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="rounds must be between"):
        limits.count("int8", -1)
    with pytest.raises(ParameterError, match="no such reading pattern"):
        limits.sum(len(limits.patterns), np.zeros(4096, np.uint8))
    with pytest.raises(ParameterError, match="whole pages"):
        limits.sum(0, np.zeros(100, np.uint8))
    with pytest.raises(MemoryLimitError, match="read bandwidth"):
        limits.read(1 << 60)
    with pytest.raises(ParameterError, match="not supported on this machine"):
        _core.Limits("avx1024", 1)
    with pytest.raises(ParameterError, match="n_threads"):
        _core.Limits("", -1)


def test_bandwidth_names_its_pattern() -> None:
    rate, pattern = _core.Limits("", 2).read(1 << 16, seconds=0)
    assert rate > 0 and pattern in _core.Limits("", 2).patterns


# ---- what a token costs -----------------------------------------------------------------------------------


def matrices(path: str) -> dict[str, Any]:
    return {t.name: t for t in gguf.GGUFReader(path).tensors}


def test_work_of_a_dense_model(model: str) -> None:
    tensors = matrices(model)
    m = _core.Model(_core.GgufFile(model))
    layers = [t for name, t in tensors.items() if name.startswith("blk.")]
    products = sum(int(t.n_elements) for t in layers if len(t.shape) == 2)
    n_embd, n_vocab = m.n_embd, m.n_vocab
    assert (m.layers_work["int8_macs"], m.layers_work["float_macs"]) == (products, 0)
    assert m.head_work["int8_macs"] + m.head_work["float_macs"] == n_embd * n_vocab
    # All rows are a multiple of 16, so panels are as large as the file's blocks.
    assert m.layers_work["bytes"] == sum(int(t.n_bytes) for t in layers)
    assert m.kv_bytes_read(10) == 10 * m.kv_bytes_per_token()


def test_work_of_experts_counts_those_used(tmp_path: Path) -> None:
    tiny.write(tmp_path / "m.gguf", "mixtral", "Q8_0")  # 2 of 5 experts
    path = str(tmp_path / "m.gguf")
    want = want_float = 0
    for name, t in matrices(path).items():
        if name.startswith("blk.") and len(t.shape) > 1:
            share = int(t.n_elements) * 2 // 5 if "_exps" in name else int(t.n_elements)
            if t.tensor_type.name == "Q8_0":
                want += share
            else:
                want_float += share
    work = _core.Model(_core.GgufFile(path)).layers_work
    assert (work["int8_macs"], work["float_macs"]) == (want, want_float)


def test_float_formats_count_as_floats(tmp_path: Path) -> None:
    tiny.write(tmp_path / "m.gguf", "llama", "F16")
    work = _core.Model(_core.GgufFile(str(tmp_path / "m.gguf"))).layers_work
    assert work["int8_macs"] == 0 and work["float_macs"] > 0


def test_local_layers_read_their_window(tmp_path: Path) -> None:
    tiny.write(tmp_path / "m.gguf", "gemma2", "Q4_0")
    file = _core.GgufFile(str(tmp_path / "m.gguf"))
    m, window = _core.Model(file), file.metadata["gemma2.attention.sliding_window"]
    assert m.n_layer == 3  # local, global, local
    assert m.kv_bytes_read(window) == window * m.kv_bytes_per_token()
    far = window + 102
    assert m.kv_bytes_read(far) == m.kv_bytes_per_token() * (2 * window + far) // 3


def test_cost_of_tests(model: str) -> None:
    m = _core.Model(_core.GgufFile(model))
    layers, head, kv = m.layers_work, m.head_work, m.kv_bytes_per_token()
    weights = layers["bytes"] + head["bytes"]
    pp = cost(m, BenchTest("pp", 10, 5))
    assert (pp.n_bytes, pp.pass_bytes) == (weights + 15 * kv, weights + 15 * kv)
    assert pp.int8_macs == 10 * layers["int8_macs"] + head["int8_macs"]
    tg = cost(m, BenchTest("tg", 3, 5))
    assert tg.n_bytes == 3 * weights + (6 + 7 + 8) * kv
    assert tg.pass_bytes == weights + 7 * kv
    assert tg.int8_macs == 3 * (layers["int8_macs"] + head["int8_macs"])
    assert tg.float_macs == 3 * (layers["float_macs"] + head["float_macs"])
    mixed = m.kv_bytes_per_token(type_k="q8_0", type_v="i16")
    assert mixed < kv and cost(m, BenchTest("pp", 10, 5), "q8_0", "i16").n_bytes == weights + 15 * mixed


def test_share_is_the_least_time_over_the_measured() -> None:
    limits = {"read": 100.0, "int8": 1000.0, "f32": 10.0}
    reading = Row(BenchTest("tg", 4, 0), Cost(800, 1000, 20, 200), [0.25, 0.5, 2.0])
    # 800 bytes take 8 s, the products 1 + 2 s; 4 tokens at 0.5 a second took 8 s
    assert reading.share(limits) == (1.0, "read")
    computing = Row(BenchTest("pp", 4, 0), Cost(100, 5000, 30, 100), [0.25])
    assert computing.share(limits) == (8 / 16, "arithmetic")


# ---- measuring --------------------------------------------------------------------------------------------


def test_a_bench_runs_every_test_as_often_as_asked(model: str) -> None:
    params = BenchParams(n_prompt=(8, 3), n_gen=(2,), depths=(0, 70), repeats=2)
    assert [t.name for t in params.tests] == [
        "pp8", "pp3", "tg2", "pp8 @ d70", "pp3 @ d70", "tg2 @ d70",
    ]  # fmt: skip
    one = Bench(model, params, n_threads=2, profile=True)
    assert sum(1 for _ in one.steps()) == 12
    facts = json.loads(json.dumps(one.as_dict()))
    runs = facts["runs"]
    assert [(r["depth"], r["n_prompt"], len(r["pp"]), r["n_gen"], len(r["tg"])) for r in runs] == [
        (0, 8, 2, 2, 2), (0, 3, 2, 0, 0), (70, 8, 2, 2, 2), (70, 3, 2, 0, 0),
    ]  # fmt: skip
    assert facts["threads"] == 2 and facts["isa"] == _core.levels()[-1]
    assert facts["peak_rss"] > facts["size"] > 0
    assert facts["first_token_s"] >= facts["load_s"] >= 0
    assert len(one.meter.peaks["int8"]) == 3  # before, between, after
    assert set(facts["limits"]) >= {"read_gb_s", "read_mib", "read_pattern", "int8_gmac_s", "f32_gmac_s"}
    assert [share["test"] for share in facts["shares"]] == [t.name for t in params.tests]
    assert all(share["share"] > 0 for share in facts["shares"])


def test_profile_adds_up_to_the_time(model: str) -> None:
    one = Bench(model, BenchParams(n_prompt=(16,), n_gen=(4,), repeats=2), profile=True)
    for _ in one.steps():
        pass
    for name, n in (("pp16", 16), ("tg4", 4)):
        seconds = one.runner.profile[name]
        (row,) = (row for row in one.rows if row.test.name == name)
        assert sum(seconds.values()) == pytest.approx(sum(n / rate for rate in row.rates), rel=1e-6)
        assert all(seconds[op] > 0 for op in ("embd", "norm", "matmul", "rope", "attention", "gate", "head"))
    assert "outside" in seconds


def test_profiling_changes_no_bit(model: str) -> None:
    tokens = np.arange(1, 20, dtype=np.int32)
    file = _core.GgufFile(model)
    plain, timed = (_core.Session(_core.Model(file, profile=p), 32) for p in (False, True))
    assert np.array_equal(plain.eval(tokens, "all"), timed.eval(tokens, "all"))
    with pytest.raises(ParameterError, match="profile=True"):
        _core.Model(file).take_profile()


def test_depth_is_filled_once_and_kept(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Bench(model, BenchParams(n_prompt=(4,), n_gen=(2,), depths=(40,), repeats=2))
    evaluated: list[int] = []
    plain = one.runner._eval
    monkeypatch.setattr(one.runner, "_eval", lambda session, n: (evaluated.append(n), plain(session, n)))
    for _ in one.steps():
        pass
    filled = evaluated[0]
    assert evaluated == [filled, 4, 1, 1, 4, 1, 1]
    assert one.runner._session(40).n_tokens == 42


def test_memory_is_asked_for_before_loading(model: str) -> None:
    with pytest.raises(MemoryLimitError, match="KV cache"):
        Bench(model, BenchParams(depths=(1 << 30,)))


def test_last_cache(tmp_path: Path) -> None:
    assert last_cache_bytes(str(tmp_path)) == 0
    for index, size in enumerate(("48K", "2048K", "33M", "garbage")):
        folder = tmp_path / "sys/devices/system/cpu/cpu0/cache" / f"index{index}"
        folder.mkdir(parents=True)
        (folder / "size").write_text(size + "\n")
    assert last_cache_bytes(str(tmp_path)) == 33 << 20


# ---- the command ------------------------------------------------------------------------------------------


def test_json_is_one_line_a_thread_count(model: str) -> None:
    result = invoke("-m", model, "-p", "8", "-n", "2", "-d", "0,5", "-t", "1,2", "-r", "2", "--json")
    assert result.exit_code == 0, result.stderr
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["threads"] for line in lines] == [1, 2]
    for line in lines:
        assert [(run["depth"], len(run["pp"]), len(run["tg"])) for run in line["runs"]] == [
            (0, 2, 2),
            (5, 2, 2),
        ]


def test_table_shows_tests_shares_limits_and_profile(model: str) -> None:
    result = invoke(
        model, "-p", "8", "-n", "0", "-d", "3", "-r", "1", "-t", "1", "--profile", "--isa", _core.levels()[0]
    )
    assert result.exit_code == 0, result.stderr
    head, headings, row, _, *rest = result.stdout.splitlines()
    assert head.startswith("m.gguf ") and head.endswith(f"1 threads  {_core.levels()[0]}")
    assert headings.split() == ["test", "t/s", "±", "of", "limit", "which", "is"]
    assert row.startswith("pp8 @ d3") and "a token at" in row
    assert "tg" not in result.stdout
    assert rest[0].startswith("load ") and "peak memory" in rest[0]
    assert rest[1].startswith("this machine meanwhile: reads ") and "int8 " in rest[1]
    assert [line.split()[0] for line in rest[4:]] == [
        "embd", "norm", "matmul", "rope", "attention", "gate", "head", "other", "outside",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-p", "x"], "-p must be a number, or several with commas between them, not 'x'"),
        (["-d", "1,,2"], "-d must be a number"),
        (["-n", "-1"], "n_gen must be one or more numbers >= 0"),
        (["-p", "5,5"], "n_prompt names a number twice"),
        (["-p", "0", "-n", "0"], "nothing to measure"),
        (["-p", "99999999999"], "the tests need a context of 99999999999 tokens"),
        (["-n", "9" * 30], "there is none above 2147483647"),
        (["-p", "1", "-n", "0", "-d", f"{2**31 - 2},7"], "the tests need a context of 2147483655 tokens"),
        (["-r", "0"], "repeats must be at least 1"),
        (["-t", "9999"], "n_threads must be an integer in [0, 1024]"),
        (["-ctk", "2"], "type_k='2' is no supported type of the KV cache"),
        (["-ctk", "q4_0"], "type_k='q4_0' is no supported type of the KV cache"),
        (["--cache-type-v", "nonsense"], "There are: f16 (1), bf16 (30)"),
        (["--isa", "avx1024"], "not supported on this machine"),
        (["-m", "other.gguf"], "two models are given"),
    ],
)
def test_bad_input_is_refused(model: str, arguments: list[str], message: str) -> None:
    result = invoke(model, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_kv_types_may_be_the_numbers_that_messages_show(model: str) -> None:
    result = invoke(model, "-p", "4", "-n", "0", "-r", "1", "-ctk", "8", "-ctv", "0", "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["kv_types"] == ["q8_0", "f32"]


def test_ctrl_c_prints_what_was_measured(model: str) -> None:
    script = (
        "import os, signal, pyllamacpp.bench as b\n"
        "b._LARGEST_READ, b.last_cache_bytes = 1 << 20, lambda: 0\n"
        "plain, runs = b.Runner.seconds, []\n"
        "def seconds(self, test):\n"
        "    if len(runs) == 3:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    runs.append(test)\n"
        "    return plain(self, test)\n"
        "b.Runner.seconds = seconds\n"
        "from pyllamacpp.cli import main\n"
        "main()\n"
    )
    arguments = ["bench", model, "-p", "4", "-n", "2", "-r", "5", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 128 + signal.SIGINT, done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    assert (len(run["pp"]), len(run["tg"])) == (2, 1)
