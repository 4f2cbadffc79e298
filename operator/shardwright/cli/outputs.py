"""Documents for programs: each names its kind, and a list is always a list."""

from collections.abc import Mapping, Sequence
from typing import Any

from shardwright.api.names import API_VERSION
from shardwright.cli.output import print_json, print_yaml
from shardwright.errors import Problem


def print_problems(problems: Sequence[Problem], form: str) -> None:
    """Print faults as a ProblemList, if json or yaml was asked for."""
    print_list("ProblemList", [problem.document() for problem in problems], form)


def print_list(kind: str, items: Sequence[Mapping[str, Any]], form: str) -> None:
    """Print items as one list of a kind, as json or yaml."""
    print_document(kind, {"items": list(items)}, form)


def print_document(kind: str, content: Mapping[str, Any], form: str) -> None:
    """Print one document of a kind, as json or yaml."""
    document = {"apiVersion": API_VERSION, "kind": kind, **content}
    if form == "yaml":
        print_yaml([document])
    else:
        print_json(document)
