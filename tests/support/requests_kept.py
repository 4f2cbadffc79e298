"""What the operator has asked of the API server in a run of the control plane tests, kept for who
judges it afterwards.

Several processes may share a run, each with a control plane of its own: each keeps a file, and
files of earlier runs go.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.harness.api import Manifest

FOLDER: Final = Path(__file__).parents[2] / "build" / "requests"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request and its answer; ``resource`` with group and subresource, empty where it is about
    none.
    """

    verb: str
    resource: str
    uri: str
    code: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The requests of a run, each once, and the test modules that were in it."""

    modules: frozenset[str]
    requests: frozenset[Request]


def keep(modules: Iterable[str], events: Iterable[Manifest], folder: Path = FOLDER) -> None:
    """Keep what the operator has asked, by the audit log of one process's control plane."""
    run = folder / os.environ.get("PYTEST_XDIST_TESTRUNUID", f"alone-{os.getpid()}")
    run.mkdir(parents=True, exist_ok=True)
    for other in folder.iterdir():
        if other != run:
            shutil.rmtree(other, ignore_errors=True)
    requests = {_request(event) for event in events}
    content = {
        "modules": sorted(modules),
        "requests": [dataclasses.asdict(request) for request in requests],
    }
    (run / f"{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}.json").write_text(json.dumps(content))


def kept(folder: Path = FOLDER) -> Run:
    """Return the last run."""
    contents = list(_contents(folder))
    assert contents, f"no run of the control plane tests is kept in {folder}: make test makes one"
    return Run(
        modules=frozenset(module for content in contents for module in content["modules"]),
        requests=frozenset(
            Request(**request) for content in contents for request in content["requests"]
        ),
    )


def _contents(folder: Path) -> Iterator[Manifest]:
    for file in sorted(folder.glob("*/*.json")):
        yield json.loads(file.read_text())


def _request(event: Manifest) -> Request:
    reference, answer = event.get("objectRef") or {}, event.get("responseStatus") or {}
    resource = "/".join(
        part for part in (reference.get("resource"), reference.get("subresource")) if part
    )
    group = reference.get("apiGroup")
    return Request(
        verb=event["verb"],
        resource=f"{group}/{resource}" if group and resource else resource,
        uri=event["requestURI"],
        code=int(answer.get("code", 0)),
        message=answer.get("message", ""),
    )
