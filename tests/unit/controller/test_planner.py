"""What the planner keeps beside the plans: the administrator's catalogue; and whose GPUs it plans on."""

import asyncio
import json
from pathlib import Path

import pytest

from shardwright.api.resource import parse_manifest
from shardwright.controller.planner import Planner
from shardwright.controller.view import View
from shardwright.errors import InputError
from shardwright.hardware.nodes import GpuUsage, read_node
from shardwright.resolving.stock import reservations_of
from tests.support.builders_deployment import a_plan
from tests.support.builders_nodes import h100_nodes
from tests.support.builders_operator import LARGE
from tests.support.builders_reconcile import a_record
from tests.support.builders_resource import A_CONFIG, a_sharded_model


def a_catalogue(name: str = "us/ours") -> str:
    return json.dumps({name: json.dumps(A_CONFIG)})


def test_a_catalogue_is_read_when_it_changes_and_only_then(tmp_path: Path) -> None:
    file = tmp_path / "models.json"
    planner = Planner(View(), file)
    assert not planner.reload()
    file.write_text(a_catalogue())
    assert [planner.reload(), planner.reload()] == [True, False]


def test_a_catalogue_that_cannot_be_read_changes_nothing_and_ends_nothing(tmp_path: Path) -> None:
    file = tmp_path / "models.json"
    planner = Planner(View(), file)
    for content in (b"\xff\xfe no text", b"{", b"[]", json.dumps({"us/ours": A_CONFIG}).encode()):
        file.write_bytes(content)
        assert not planner.reload()
    file.unlink()
    file.mkdir()  # what is there cannot be opened
    assert not planner.reload()


def test_new_settings_hold_and_broken_ones_change_nothing(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    planner = Planner(View(), None, file)
    planner.load_settings()  # nothing is there yet
    file.write_text(json.dumps({"engineDefaults": {"engine": {"args": {"seed": 4}}}}))
    assert planner.reload()
    for content in ("{", '{"engineDefaults": {"engine": {"image": "-"}}}', '{"admittedArguments": ["config"]}'):
        file.write_text(content)
        assert not planner.reload()
    file.unlink()
    assert not planner.reload()

    subject = planner.resolve(parse_manifest(a_sharded_model()), None)

    assert subject.deployment.arguments == {"seed": 4}
    assert subject.defaulted == ("engine.args.seed",)


def test_an_operator_does_not_start_with_broken_settings(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text('{"engineDefaults": {"replicas": 1}}')

    with pytest.raises(InputError, match=r"engineDefaults\.replicas: is not a setting"):
        Planner(View(), None, file).load_settings()


@pytest.mark.parametrize(("nodes", "place"), [(6, ("h100-02", "h100-03")), (3, ("h100-00", "h100-01"))])
def test_a_change_while_a_next_generation_starts_leaves_the_former_its_gpus_where_there_are_others(
    nodes: int, place: tuple[str, ...]
) -> None:
    """The former one serves on h100-00 and -01; the next one, on what is elsewhere, has no pod yet."""
    view = View()
    planner = Planner(view, None)
    before, after = (
        planner.resolve(parse_manifest(a_sharded_model(model=LARGE, workload={"concurrency": load})), None) for load in (8, 16)
    )
    facts = {node["metadata"]["name"]: fact for node in h100_nodes(nodes) if (fact := read_node(node))}
    view.nodes.finish_list(facts)
    pods = reservations_of(("default", "llama"), a_plan(groups=(("h100-00", "h100-01"),)))
    view.usage.finish_list(
        {
            ("default", f"llama-0-{rank}"): GpuUsage(
                node=pod.node, resource="nvidia.com/gpu", gpus=pod.gpus, owner=pod.owner, group=pod.group
            )
            for rank, pod in enumerate(pods)
        }
    )
    record = a_record(cut_hash=before.cut_hash, plan=a_plan(groups=(("h100-02", "h100-03"),)), generations=(1,))
    view.reserve(("default", "llama"), record)

    planned = asyncio.run(planner.plan(("default", "llama"), after, record, serving=True))

    assert planned.record is not None
    assert (planned.record.plan.groups, planned.record.generations) == ((place,), (1,))
