"""A hub on loopback that answers as the real one: codes, headers and redirects, for small files and
for those on a content host.

Source of the behaviour: huggingface_hub 2.4 (``utils/_http.py``, ``file_download.py``). That
client, tried against it with HEAD added, downloads both kinds of files and raises the error of each
refusal.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OLDER = "89abcdef0123456789abcdef0123456789abcdef"


class Handler(BaseHTTPRequestHandler):
    """Hands every request to the site that it belongs to."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.close_connection = True
        site = self.server.site  # type: ignore[attr-defined]
        site.seen.append((self.path, self.headers.get("Authorization")))
        try:
            site.answer(self)
        except OSError:  # whoever asked has gone away
            return

    def reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Answer in full; header names are written with underscores."""
        self.send_response(status)
        for name, value in {
            "Content_Length": str(len(body)),
            "Connection": "close",
            **headers,
        }.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the base class
        """Say nothing."""


Answer = Callable[[Handler], None]


@dataclass(kw_only=True)
class Site:
    """A server: what it answers by path (``answers`` first), and what it was asked: path and
    Authorization.
    """

    url: str = ""
    answers: dict[str, Answer] = field(default_factory=dict)
    seen: list[tuple[str, str | None]] = field(default_factory=list)

    def answer(self, request: Handler) -> None:
        self.answers.get(request.path, self.otherwise)(request)

    def otherwise(self, request: Handler) -> None:
        request.reply(404)


@dataclass(kw_only=True)
class Repository:
    """Files by name at one commit and at an older one; ``readers`` are the tokens that may see it,
    None for everybody.
    """

    files: Mapping[str, bytes]
    older: Mapping[str, bytes] = field(default_factory=dict)
    gated: bool = False
    readers: frozenset[str] | None = None
    on_content_host: frozenset[str] = frozenset()


@dataclass(kw_only=True)
class LoopbackHub(Site):
    """The hub, which sends readers of large files to ``content``, another origin."""

    content: Site = field(default_factory=Site)
    tokens: frozenset[str] = frozenset({"hf_reader", "hf_stranger"})
    repositories: dict[str, Repository] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)

    def otherwise(self, request: Handler) -> None:
        model, found, rest = request.path.lstrip("/").partition("/resolve/")
        revision, _, file = rest.partition("/")
        token = (request.headers.get("Authorization") or "").removeprefix("Bearer ") or None
        repository = self.repositories.get(model)
        if token and token not in self.tokens:
            request.reply(401, X_Error_Message="Invalid credentials in Authorization header")
        elif model in self.renamed:
            request.reply(307, Location=f"/{self.renamed[model]}/resolve/{rest}")
        elif (
            not found or repository is None or (_hidden(repository, token) and not repository.gated)
        ):
            request.reply(
                404 if token else 401,
                X_Error_Code="RepoNotFound",
                X_Error_Message="Repository not found",
            )
        elif _hidden(repository, token):
            request.reply(
                403 if token else 401,
                X_Error_Code="GatedRepo",
                X_Error_Message="Access to model is restricted",
            )
        else:
            self._give(request, repository, revision, file)

    def _give(self, request: Handler, repository: Repository, revision: str, file: str) -> None:
        commit = {"main": COMMIT, COMMIT: COMMIT, OLDER: OLDER}.get(revision)
        files = repository.older if commit == OLDER else repository.files
        if commit is None:
            request.reply(404, X_Error_Code="RevisionNotFound", X_Error_Message="Invalid rev id")
        elif file not in files:
            request.reply(
                404,
                X_Error_Code="EntryNotFound",
                X_Error_Message="Entry not found",
                X_Repo_Commit=commit,
            )
        elif file in repository.on_content_host:
            self.content.answers.setdefault(f"/{commit}/{file}", giving(files[file]))
            request.reply(302, X_Repo_Commit=commit, Location=f"{self.content.url}/{commit}/{file}")
        else:
            path = f"/api/resolve-cache/{commit}/{file}"
            self.answers[path] = giving(files[file], X_Repo_Commit=commit)
            request.reply(307, X_Repo_Commit=commit, Location=path)


def giving(body: bytes, status: int = 200, **headers: str) -> Answer:
    """Return an answer of this body."""
    return lambda request: request.reply(status, body, **headers)


@contextmanager
def serving(site: Site, context: ssl.SSLContext | None = None) -> Iterator[None]:
    """Serve a site on a port of its own, over TLS with a context; its ``url`` is set."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.site = site  # type: ignore[attr-defined]
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    site.url = f"{'https' if context else 'http'}://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def a_hub(**repositories: Repository) -> Iterator[LoopbackHub]:
    """Serve a hub and its content host; ``us__ours`` is the repository ``us/ours``."""
    hub = LoopbackHub(
        repositories={name.replace("__", "/"): one for name, one in repositories.items()}
    )
    with serving(hub), serving(hub.content):
        yield hub


def _hidden(repository: Repository, token: str | None) -> bool:
    return repository.readers is not None and token not in repository.readers
