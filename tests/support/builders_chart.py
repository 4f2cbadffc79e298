"""What the chart renders, and how two renderings differ."""

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.deployed import NAMED

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "shardwright"
STORED: Final = ROOT / "tests" / "data" / "chart_values" / "0.1.0.yaml"
"""The one snapshot of values that upgrades are tested from; `tests/data/landed` says how it is
made.
"""
SYSTEM = "shardwright-system"
GONE: Final = "(gone)"
NEW: Final = "(new)"
_BOUND = (
    "budgets children configmaps events jobs leases networkpolicies pods pools revisions routers "
    "scaledobjects scales secrets services statefulsets"
)
POLICIES: Final = tuple(f"shardwright-{name}" for name in _BOUND.split())
"""Names of the admission policies that bind the operator, and of their bindings."""

WARNS: Final = "shardwright-autoscaled"
"""The one for whoever writes a ShardedModel: it refuses nothing."""

EVERY_POLICY: Final = (WARNS, *POLICIES)


def render(
    control_plane: ControlPlane,
    *arguments: str,
    release: str = "shardwright",
    namespace: str = SYSTEM,
    chart: Path = CHART,
) -> list[Manifest]:
    """Return what `helm template` prints, with the image named and more arguments to it."""
    text = control_plane.helm(
        "template",
        release,
        str(chart),
        "--namespace",
        namespace,
        "--skip-tests",
        *NAMED,
        *arguments,
    )
    return read(text)


def chart_with(folder: Path, values: Mapping[str, Any]) -> Path:
    """Return a copy of the chart that delivers other values. Helm makes the same of this chart when
    `--reuse-values` brings those that a release has stored.
    """
    chart = folder / "shardwright"
    shutil.copytree(CHART, chart)
    (chart / "values.yaml").write_text(json.dumps(values))
    return chart


def without(values: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return the values but for the one of this dotted path."""
    name, _, inner = path.partition(".")
    return {
        key: without(value, inner) if key == name else value
        for key, value in values.items()
        if key != name or inner
    }


def read(text: str) -> list[Manifest]:
    """Return the objects of a YAML stream, in its order."""
    return [
        item
        for item in yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        if item
    ]


def named(objects: Iterable[Manifest], kind: str, suffix: str = "") -> Manifest:
    """Return the one object of a kind whose name ends so."""
    (found,) = (
        item
        for item in objects
        if item["kind"] == kind and item["metadata"]["name"].endswith(suffix)
    )
    return found


def difference(before: list[Manifest], after: list[Manifest]) -> dict[str, Any]:
    """Return what is otherwise afterwards: path to value, to `GONE` or, of a whole object, to
    `NEW`.

    The path of an object is its kind and name.
    """
    old, new = (
        {f"{item['kind']}/{item['metadata']['name']}": item for item in objects}
        for objects in (before, after)
    )
    changed: dict[str, Any] = dict.fromkeys(old.keys() - new.keys(), GONE) | dict.fromkeys(
        new.keys() - old.keys(), NEW
    )
    for name in new.keys() & old.keys():
        was, now = dict(_leaves(old[name], name)), dict(_leaves(new[name], name))
        changed |= {
            path: value for path, value in now.items() if path not in was or was[path] != value
        }
        changed |= dict.fromkeys(was.keys() - now.keys(), GONE)
    return changed


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    nested = [
        leaf
        for key, item in inner
        for leaf in _leaves(item, f"{path} {key}" if " " not in path else f"{path}.{key}")
    ]
    return iter(nested or [(path, value)])


def schema() -> dict[str, Any]:
    """Return values.schema.json."""
    found: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
    return found


def defaults() -> dict[str, Any]:
    """Return values.yaml."""
    found: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return found


@cache
def _delivered() -> dict[str, Any]:
    """Return the same, read once for many questions."""
    return defaults()


def described_values() -> dict[str, str]:
    """Return the description of every value that a user can set, by its dotted path."""
    return dict(_described(schema(), ""))


def _described(node: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for name, child in node["properties"].items():
        inner = f"{path}{name}"
        if "properties" in child:
            yield from _described(child, f"{inner}.")
        else:
            yield inner, child["description"]


def default_of(path: str) -> Any:
    """Return the default of a value; KeyError where values.yaml has none."""
    value: Any = _delivered()
    for step in path.split("."):
        value = value[step]
    return value
