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
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repos: dict[str, dict[str, bytes]] = {}
        self.gated: set[str] = set()
        self.wheels: dict[str, bytes] = {}
        self.cut: set[str] = set()
        self.log: list[str] = []

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
            files = self.server.repos[match[1]]
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
            else ("RevisionNotFound", 404) if revision not in ("main", COMMIT)
            else None
        )  # fmt: skip
        if code:
            self._send(code[1], b"{}", {"X-Error-Code": code[0]}, kind="application/json")
        return code is not None

    def _info(self, repo: str, revision: str) -> None:
        if not self._refused(repo, revision):
            files = [{"rfilename": f, "size": len(d)} for f, d in self.server.repos[repo].items()]
            body = {
                "id": repo,
                "modelId": repo,
                "sha": COMMIT,
                "siblings": files,
                "private": False,
                "tags": [],
            }
            self._send(200, json.dumps(body).encode(), kind="application/json")

    def _file(self, repo: str, revision: str, file: str) -> None:
        if self._refused(repo, revision):
            return
        if file not in self.server.repos[repo]:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        data = self.server.repos[repo][file]
        headers = {
            "ETag": f'"{hashlib.sha256(data).hexdigest()}"',
            "X-Repo-Commit": COMMIT,
            "Accept-Ranges": "bytes",
        }
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
