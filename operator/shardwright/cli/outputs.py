"""Documents for programs: a list is always a list, whatever is in it, and says of which kind it is."""

from collections.abc import Mapping, Sequence
from typing import Any

from shardwright.api.names import API_VERSION
from shardwright.cli.output import print_json, print_yaml


def print_list(kind: str, items: Sequence[Mapping[str, Any]], form: str) -> None:
    """Print items as one list of a kind, as json or yaml."""
    document = {"apiVersion": API_VERSION, "kind": kind, "items": list(items)}
    if form == "yaml":
        print_yaml([document])
    else:
        print_json(document)
