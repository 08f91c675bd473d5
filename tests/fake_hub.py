"""A Hugging Face Hub and a package index on loopback, for tests."""

from __future__ import annotations

import hashlib
import io
import json
import re
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "c0ffee" * 6 + "abcd"


class FakeHub(ThreadingHTTPServer):
    """`repos`: "owner/repo" -> {file: bytes}; `wheels`: wheel file name -> bytes; `log`: the requests.

    A file in `cut` is served only to half its length, then the connection is closed.
    `branches`: ("owner/repo", name) -> (commit, {file: bytes}), beside the main one.
    `tokens`: (host asked, path, Authorization header or None) of each request.
    `storage`: a host that files are redirected to, under /storage/.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repos: dict[str, dict[str, bytes]] = {}
        self.gated: set[str] = set()
        self.wheels: dict[str, bytes] = {}
        self.cut: set[str] = set()
        self.log: list[str] = []
        self.branches: dict[tuple[str, str], tuple[str, dict[str, bytes]]] = {}
        self.tokens: list[tuple[str, str, str | None]] = []
        self.storage = ""

    def commit(self, repo: str, revision: str) -> tuple[str, dict[str, bytes]] | None:
        """(commit, files) of a branch or commit."""
        if revision in ("main", COMMIT):
            return COMMIT, self.repos[repo]
        known = [self.branches[key] for key in self.branches if key[0] == repo]
        named = self.branches.get((repo, revision))
        return named or next((branch for branch in known if branch[0] == revision), None)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def fake_hub() -> Iterator[FakeHub]:
    server = FakeHub()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def make_wheel(name: str, version: str, members: Mapping[str, bytes]) -> tuple[str, bytes]:
    """(file name, content) of a pure wheel with these members beside its metadata."""
    distribution = name.replace("-", "_")
    info = f"{distribution}-{version}.dist-info"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in members.items():
            archive.writestr(member, data)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return f"{distribution}-{version}-py3-none-any.whl", buffer.getvalue()


class _Handler(BaseHTTPRequestHandler):
    server: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.split("?")[0].replace("%2F", "/")
        self.server.log.append(f"{self.command} {path}")
        self.server.tokens.append(
            (self.headers.get("Host", "").split(":")[0], path, self.headers.get("Authorization"))
        )
        if path.startswith("/storage/"):
            path = path.removeprefix("/storage")
        if match := re.fullmatch(r"/simple/([^/]+)/", path):
            self._index(match[1])
        elif path.startswith("/wheels/"):
            name = path.removeprefix("/wheels/")
            self._send(200, self.server.wheels[name], cut=name in self.server.cut)
        elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+?)(/revision/([^/]+))?", path):
            self._info(match[1], match[3] or "main")
        elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/([^/]+)", path):
            if self._refused(match[1], match[2]):
                return
            found = self.server.commit(match[1], match[2])
            assert found is not None
            files = found[1]
            tree = [{"type": "file", "path": f, "size": len(d), "oid": "0" * 40} for f, d in files.items()]
            self._send(200, json.dumps(tree).encode(), kind="application/json")
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._file(*match.groups())
        else:
            self._send(404, b"")

    def _index(self, package: str) -> None:
        names = [w for w in self.server.wheels if w.split("-")[0].replace("_", "-") == package]
        links = "".join(
            f'<a href="/wheels/{w}#sha256={hashlib.sha256(self.server.wheels[w]).hexdigest()}">{w}</a>'
            for w in names
        )
        self._send(
            200 if names else 404,
            f"<!DOCTYPE html><html><body>{links}</body></html>".encode(),
            kind="text/html",
        )

    def _refused(self, repo: str, revision: str) -> bool:
        code = (
            ("RepoNotFound", 404) if repo not in self.server.repos
            else ("GatedRepo", 403) if repo in self.server.gated
            else ("RevisionNotFound", 404) if self.server.commit(repo, revision) is None
            else None
        )  # fmt: skip
        if code:
            self._send(code[1], b"{}", {"X-Error-Code": code[0]}, kind="application/json")
        return code is not None

    def _info(self, repo: str, revision: str) -> None:
        if not self._refused(repo, revision):
            found = self.server.commit(repo, revision)
            assert found is not None
            files = [{"rfilename": f, "size": len(d)} for f, d in found[1].items()]
            body = {
                "id": repo,
                "modelId": repo,
                "sha": found[0],
                "siblings": files,
                "private": False,
                "tags": [],
            }
            self._send(200, json.dumps(body).encode(), kind="application/json")

    def _file(self, repo: str, revision: str, file: str) -> None:
        if self._refused(repo, revision):
            return
        found = self.server.commit(repo, revision)
        if found is None or file not in found[1]:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        data = found[1][file]
        headers = {
            "ETag": f'"{hashlib.sha256(data).hexdigest()}"',
            "X-Repo-Commit": found[0],
            "Accept-Ranges": "bytes",
        }
        if self.server.storage and not self.path.startswith("/storage/"):
            headers |= {
                "X-Linked-Etag": headers["ETag"],
                "X-Linked-Size": str(len(data)),
                "Location": f"http://{self.server.storage}:{self.server.server_port}/storage{self.path}",
            }
            self._send(302, b"", headers)
            return
        start = self.headers.get("Range")
        if start and self.command == "GET":
            first = int(start.split("=")[1].split("-")[0])
            headers["Content-Range"] = f"bytes {first}-{len(data) - 1}/{len(data)}"
            self._send(206, data[first:], headers, cut=file in self.server.cut)
        else:
            self._send(200, data, headers, cut=file in self.server.cut)

    def _send(
        self,
        status: int,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        *,
        kind: str = "application/octet-stream",
        cut: bool = False,
    ) -> None:
        self.send_response(status)
        for key, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if cut else body)
        if cut:
            self.close_connection = True
