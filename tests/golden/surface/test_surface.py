"""What users have: names that programs rely on, and all that the operator writes for samples and for
40 drawn specs.

The CRD, the values schema, flags and help, the options of engines and the install manifest (with
the rights) are generated files, which other tests compare.
"""

import asyncio
import base64
import difflib
import json
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from shardwright.api.conditions import Reason
from shardwright.cli.exits import Exit
from shardwright.cluster.resources import EVENTS, NODES, PODS, SECRETS
from shardwright.controller.metrics import Metrics
from tests.support import example_fleet
from tests.support.builders_operator import NAMESPACE
from tests.support.memory_cluster import MemoryCluster
from tests.support.memory_operator import MemoryOperator

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
NAMES = HERE / "names.txt"
WRITTEN = HERE / "written.json.xz"
CHANGES_SHOWN = 80
NOISE = ("uid", "resourceVersion", "lastTransitionTime")
"""Of the API server's counting and the clock: nobody relies on their values."""


def test_the_names_that_programs_rely_on_are_the_ones_that_were_read(
    update_goldens: bool,  # noqa: FBT001  # a fixture
) -> None:
    text = "\n".join(_names()) + "\n"
    if update_goldens:
        NAMES.write_text(text)
    assert text == NAMES.read_text()


@pytest.mark.long("plans and deploys 48 models")
def test_all_that_the_operator_writes_is_what_it_wrote(
    update_goldens: bool,  # noqa: FBT001  # a fixture
) -> None:
    text = json.dumps(_written(), indent=1, sort_keys=True)
    if update_goldens:
        WRITTEN.write_bytes(lzma.compress(text.encode(), preset=9))
    before = lzma.decompress(WRITTEN.read_bytes()).decode()
    changes = difflib.unified_diff(
        before.splitlines(), text.splitlines(), "before", "now", lineterm="", n=1
    )
    assert "\n".join([*changes][:CHANGES_SHOWN]) == ""


def _names() -> Iterator[str]:
    yield from (f"exit {it.value} {name}" for name, it in Exit.__members__.items())
    yield from sorted(f"reason {it.value}" for it in Reason)
    families = text_string_to_metric_families(Metrics().text().decode())
    yield from sorted(f"metric {it.type} {it.name}" for it in families)


def _written() -> dict[str, Any]:
    samples = sorted((ROOT / "manifests" / "samples").glob("*.yaml"))
    specs = {f"sample {it.stem}": yaml.safe_load(it.read_text())["spec"] for it in samples}
    drawn = yaml.safe_load((HERE / "specs.yaml").read_text())
    specs |= {f"drawn {number}": spec for number, spec in enumerate(drawn)}
    return {name: asyncio.run(_life(spec)) for name, spec in specs.items()}


async def _life(spec: dict[str, Any]) -> list[Any]:
    """Return all objects of a model of this spec that was created and came to rest, alone on the
    example fleet.
    """
    cluster = MemoryCluster()
    for item in example_fleet.fleet()["items"]:
        cluster.put(NODES if item["kind"] == "Node" else PODS, item)
    operator = MemoryOperator(cluster)
    await operator.start()
    operator.parts.add_model("m", **spec)
    await operator.rest()
    left_out = {it.plural for it in (NODES, PODS, EVENTS, SECRETS)}  # random tokens
    return [
        _quiet(item)
        for (plural, namespace, _), item in sorted(cluster.objects.items(), key=str)
        if namespace == NAMESPACE and plural not in left_out
    ]


def _quiet(value: Any) -> Any:
    """Return it without noise, and with texts readable that are kept compressed."""
    if isinstance(value, list):
        return [_quiet(it) for it in value]
    if not isinstance(value, dict):
        return value
    if "zlib" in value:
        text = zlib.decompress(base64.b64decode(value["zlib"]))
        return {"zlib": json.loads(text)}
    return {key: _quiet(it) for key, it in value.items() if key not in NOISE}
