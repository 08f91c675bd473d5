"""`Llama.from_pretrained` and each of its options, against a fake hub on loopback."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest
import tiny
from fake_hub import COMMIT, FakeHub
from test_hub import server as server  # the fixture

from pyllamacpp import Llama, hub
from pyllamacpp.errors import ModelNotFoundError, ParameterError

REPO, FILE = "acme/tiny", "t-Q8_0.gguf"
OTHER = "beef" * 10


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    folder = tmp_path_factory.mktemp("models")
    return [
        tiny.write(folder / f"{i}.gguf", seed=i, metadata={"general.name": str(i)}).read_bytes()
        for i in (0, 1)
    ]


def opened(**options: Any) -> str:
    """general.name of what was opened, and its path."""
    with Llama.from_pretrained(REPO, FILE, verbose=False, n_ctx=64, **options) as llm:
        assert llm("hello", max_tokens=2)["usage"]["completion_tokens"] <= 2
        return llm.metadata["general.name"]


def test_revisions_are_kept_apart(
    server: FakeHub, models: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.repos[REPO] = {FILE: models[0]}
    server.branches[REPO, "v2"] = (OTHER, {FILE: models[1]})
    for _ in range(2):  # fetched, then found
        assert (opened(), opened(revision="v2"), opened(revision=OTHER)) == ("0", "1", "1")
    monkeypatch.setattr(socket.socket, "connect", lambda *a: pytest.fail("network used"))
    start = time.perf_counter()
    for revision in (None, "v2", OTHER):
        hub.from_repo(REPO, FILE, revision=revision)
    assert time.perf_counter() - start < 0.1
    assert (opened(), opened(revision="v2")) == ("0", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelNotFoundError, match="v3"):
        opened(revision="v3")


def test_revision_in_a_folder_of_ones_own(
    server: FakeHub, models: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.repos[REPO] = {FILE: models[0]}
    server.branches[REPO, "v2"] = (OTHER, {FILE: models[1]})
    here = tmp_path / "here"
    assert opened(local_dir=here) == "0"
    assert opened(local_dir=str(here), revision="v2") == "1"  # not the file that lies there already
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert opened(local_dir=here, revision=OTHER) == opened(local_dir=here, revision="v2") == "1"
    for other in (None, "v3", COMMIT):
        with pytest.raises(ModelNotFoundError, match="not here"):
            opened(local_dir=here, revision=other)
    monkeypatch.delenv("HF_HUB_OFFLINE")
    assert opened(local_dir=here) == "0"
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert opened(local_dir=here) == opened(local_dir=here, revision=COMMIT) == "0"
    (tmp_path / "copied").mkdir()  # a file that nobody noted anything of is what the user says
    (tmp_path / "copied" / FILE).write_bytes(models[1])
    assert opened(local_dir=tmp_path / "copied") == "1"


def test_cache_dir_and_additional_files(server: FakeHub, models: list[bytes], tmp_path: Path) -> None:
    server.repos[REPO] = {FILE: models[0], "notes.txt": b"n", "mmproj-f16.gguf": b"p", "other.txt": b"o"}
    place = tmp_path / "place"
    assert opened(cache_dir=place, additional_files=["notes.txt", "mmproj*"]) == "0"
    names = {path.name for path in place.rglob("*") if path.is_file()}
    assert {FILE, "notes.txt", "mmproj-f16.gguf"} <= names and "other.txt" not in names
    assert not (tmp_path / "hf").exists()  # the Hub's own cache
    with pytest.raises(ModelNotFoundError, match="no file 'absent'"):
        opened(additional_files=["absent"])
    with pytest.raises(ModelNotFoundError, match=r"no file matches '\*\.absent'"):
        opened(additional_files=["*.absent"])


def test_token_goes_to_the_hub_alone(server: FakeHub, models: list[bytes]) -> None:
    server.repos[REPO] = {FILE: models[0]}
    server.storage = "localhost"  # files lie on another host, as the Hub's do
    assert opened(token="hf_secret") == "0"
    sent = {(host, token) for host, _, token in server.tokens}
    assert ("127.0.0.1", "Bearer hf_secret") in sent
    assert {token for host, token in sent if host == "localhost"} == {None}
    assert any(path.startswith("/storage/") for _, path, _ in server.tokens)


def test_no_token_unless_there_is_one(
    server: FakeHub, models: list[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    server.repos[REPO] = {FILE: models[0]}
    opened()
    assert {token for *_, token in server.tokens} == {None}
    monkeypatch.setenv("HF_TOKEN", "hf_mine")
    opened(cache_dir=tmp_path / "again")
    assert "Bearer hf_mine" in {token for *_, token in server.tokens}


def test_globs_and_refusals(server: FakeHub, models: list[bytes]) -> None:
    server.repos[REPO] = {FILE: models[0], "t-F16.gguf": models[1]}
    with Llama.from_pretrained(REPO, "*F16*", verbose=False) as llm:
        assert llm.metadata["general.name"] == "1"
    with Llama.from_pretrained(REPO, None, verbose=False) as llm:
        assert llm.metadata["general.name"] == "0"
    with pytest.raises(ModelNotFoundError, match="matches 2 models"):
        Llama.from_pretrained(REPO, "*.gguf", verbose=False)
    with pytest.raises(ParameterError, match="not a repository name"):
        Llama.from_pretrained("tiny", FILE)
    with pytest.raises(TypeError, match="nonsense"):
        Llama.from_pretrained(REPO, FILE, nonsense=1)
    assert os.environ.get("HF_HUB_OFFLINE") is None


@pytest.mark.parametrize("bad", [{"type_k": "q4_0"}, {"type_v": 2}, {"n_threads": -1}], ids=str)
def test_parameters_are_checked_before_anything_is_fetched(
    server: FakeHub, models: list[bytes], bad: dict[str, Any]
) -> None:
    server.repos[REPO] = {FILE: models[0]}
    with pytest.raises(ParameterError, match=next(iter(bad))):
        opened(**bad)
    assert server.log == []
