"""What of the chart is written by a program: comments of its values, the README's table, and what
fields of others may be.

The schema has the descriptions and values.yaml the defaults; all else follows from them.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from textwrap import wrap
from typing import Any, Final

import kubernetes_validate  # type: ignore[import-untyped]
import yaml

from tests.support import value_schemas
from tests.support.builders_chart import CHART, default_of, defaults, described_values

WIDTH: Final = 120
BEGIN, END = "<!-- values: written by `make generate` -->\n", "<!-- end of values -->\n"
HEAD: Final = """\
# All values of the chart, with their defaults. Helm refuses unknown values and wrong types.
# Comments are written from values.schema.json, like the table in README.md, by `make generate`.
"""
_KUBERNETES: Final = (
    Path(kubernetes_validate.__file__).parent
    / "kubernetes-json-schema"
    / f"v{kubernetes_validate.latest_version()}-local-strict"
)


def documents() -> dict[Path, str]:
    """Return what each file with a part that is written is to hold."""
    return {
        CHART / "values.schema.json": _schema(),
        CHART / "values.yaml": _values(),
        CHART / "files" / "values.json": json.dumps(defaults(), indent=2) + "\n",
        CHART / "README.md": _readme(),
    }


def _values() -> str:
    return HEAD + "".join(f"\n{block}" for block in _blocks(defaults(), "", described_values()))


def _blocks(node: dict[str, Any], path: str, described: dict[str, str]) -> Iterator[str]:
    """Yield the lines of each value or group of values; those of a group are indented."""
    indent = "  " * path.count(".")
    for name, value in node.items():
        if f"{path}{name}" in described:
            said = wrap(
                described[f"{path}{name}"],
                WIDTH - len(indent),
                break_on_hyphens=False,
                break_long_words=False,
            )
            written = yaml.safe_dump({name: value}, sort_keys=False, width=WIDTH).splitlines()
            yield "".join(
                f"{indent}{line}\n" for line in [*(f"# {line}" for line in said), *written]
            )
        else:
            yield f"{indent}{name}:\n" + "".join(_blocks(value, f"{path}{name}.", described))


def _readme() -> str:
    before, _, rest = (CHART / "README.md").read_text().partition(BEGIN)
    rows = [
        f"| `{path}` | `{json.dumps(default_of(path))}` | {text} |"
        for path, text in described_values().items()
    ]
    table = "\n".join(["", "| value | default | effect |", "|---|---|---|", *rows, "", ""])
    return f"{before}{BEGIN}{table}{END}{rest.partition(END)[2]}"


def _schema() -> str:
    """Return values.schema.json with the last of its definitions written anew: what is of our
    resources, and of Kubernetes.
    """
    before, marker, _ = (
        (CHART / "values.schema.json").read_text().partition('    "engineDefaults": {"type"')
    )
    assert marker
    schemas = {
        "engineDefaults": value_schemas.defaults_schema(),
        "gpus": value_schemas.gpus_schema(),
        "autoscaledPools": value_schemas.pools_schema(),
        "networkPeers": value_schemas.peers_schema(),
        "egressRules": value_schemas.egress_schema(),
        "affinity": _of_kubernetes("Affinity"),
        "topologySpreadConstraints": {
            "type": "array",
            "items": _of_kubernetes("TopologySpreadConstraint"),
        },
        "podSecurityContext": _of_kubernetes("PodSecurityContext"),
        "securityContext": _of_kubernetes("SecurityContext"),
        "dnsConfig": _of_kubernetes("PodDNSConfig"),
        "environment": {"type": "array", "items": _of_kubernetes("EnvVar")},
    }
    lines = ",\n".join(
        f'    "{name}": {json.dumps(schema, ensure_ascii=False)}'
        for name, schema in schemas.items()
    )
    return f"{before}{lines}\n  }}\n}}\n"


def _of_kubernetes(kind: str) -> Any:
    """Return the schema of a part of a pod, whole and closed, without its texts."""
    definitions = _definitions()
    return _whole(definitions[f"io.k8s.api.core.v1.{kind}"], definitions)


@cache
def _definitions() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((_KUBERNETES / "_definitions.json").read_text())["$defs"]
    return found


def _whole(node: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_whole(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _whole(definitions[node["$ref"].rpartition("/")[2]], definitions)
    kept = {"type", "required", "items", "additionalProperties", "oneOf", "enum"}
    found = {name: _whole(value, definitions) for name, value in node.items() if name in kept}
    fields = {
        name: _whole(value, definitions) for name, value in node.get("properties", {}).items()
    }
    return found | ({"properties": fields} if fields else {})
