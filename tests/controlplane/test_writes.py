"""What our client relies on when others write at the same time, asked of the real API server."""

import asyncio
from collections.abc import Iterator

import pytest

from shardwright.cli.changed_values import removed_fields
from shardwright.cli.diff import as_stored
from shardwright.cluster import writer
from shardwright.cluster.access import open_access
from shardwright.cluster.client import ApiError, Client
from shardwright.cluster.resources import CONFIG_MAPS
from shardwright.reconcile.drift import drifted_fields
from shardwright.reconcile.snapshot import Outcome
from shardwright.reconcile.writes import Apply, Create, Patch, Why, Write
from shardwright.rendering.bundle import of_kind
from shardwright.rendering.deployment import CacheClaim
from shardwright.rendering.render import render
from tests.harness.api import Manifest
from tests.harness.controlplane import ControlPlane
from tests.support.builders_deployment import a_deployment, a_plan, an_owner

pytestmark = pytest.mark.controlplane


@pytest.fixture
def client(control_plane: ControlPlane) -> Iterator[Client]:
    opened = Client(open_access(control_plane.kubeconfig), threads=2)
    yield opened
    opened.close()


async def carry_out(client: Client, writes: list[Write]) -> Outcome:
    return await writer.Writer(client, lambda _: None).carry_out(writes)


def a_config_map_with(namespace: str, **data: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "ours", "namespace": namespace},
        "data": data,
    }


def test_an_apply_removes_what_our_creation_set_and_keeps_what_others_set(
    client: Client, control_plane: ControlPlane, namespace: str
) -> None:
    async def scenario() -> None:
        await carry_out(client, [Create(content=a_config_map_with(namespace, a="1", b="1"))])
        control_plane.kubectl(
            "patch", "configmap", "ours", "-n", namespace, "-p", '{"data": {"theirs": "1"}}'
        )
        live = await client.get(CONFIG_MAPS, namespace, "ours")
        assert live
        await carry_out(
            client,
            [Apply(content=a_config_map_with(namespace, a="2"), uid=live["metadata"]["uid"])],
        )
        live = await client.get(CONFIG_MAPS, namespace, "ours")
        assert live
        assert live["data"] == {"a": "2", "theirs": "1"}

    asyncio.run(scenario())


def test_an_apply_removes_what_an_earlier_one_set_also_where_annotations_were_patched_between(
    client: Client, control_plane: ControlPlane, namespace: str
) -> None:
    def a_group(**env: str) -> Manifest:
        (group,) = of_kind(
            render(a_plan(), a_deployment(owner=an_owner(namespace=namespace))).objects,
            "StatefulSet",
        )
        template = group["spec"]["template"]
        container = template["spec"]["containers"][0]
        containers = [
            {**container, "env": [{"name": name, "value": value} for name, value in env.items()]}
        ]
        metadata = {
            key: value for key, value in group["metadata"].items() if key != "ownerReferences"
        }
        spec = {
            **group["spec"],
            "replicas": 0,
            "template": {**template, "spec": {**template["spec"], "containers": containers}},
        }
        return {**group, "metadata": metadata, "spec": spec}

    def stored() -> Manifest:
        path = f"/apis/apps/v1/namespaces/{namespace}/statefulsets/{a_group()['metadata']['name']}"
        return dict(control_plane.api.get(path))

    def names() -> list[str]:
        return [
            item["name"] for item in stored()["spec"]["template"]["spec"]["containers"][0]["env"]
        ]

    async def scenario() -> None:
        await carry_out(client, [Create(content=a_group(A="1"))])
        uid, name = stored()["metadata"]["uid"], stored()["metadata"]["name"]
        await carry_out(client, [Apply(content=a_group(A="1", B="1"), uid=uid)])
        noted = Patch(
            name=name,
            namespace=namespace,
            uid=uid,
            annotations={"shardwright.io/size": "2"},
            why=Why.NOTE,
        )
        await carry_out(client, [noted])
        assert (names(), stored()["metadata"]["annotations"]["shardwright.io/size"]) == (
            ["A", "B"],
            "2",
        )

        await carry_out(client, [Apply(content=a_group(A="1"), uid=uid)])
        assert (
            names(),
            stored()["metadata"].get("annotations", {}).get("shardwright.io/size"),
        ) == (["A"], None)

    asyncio.run(scenario())


def test_a_version_that_is_out_of_date_is_a_conflict_and_no_refusal(
    client: Client, control_plane: ControlPlane, namespace: str
) -> None:
    async def scenario() -> None:
        await carry_out(client, [Create(content=a_config_map_with(namespace, a="1"))])
        stale = await client.get(CONFIG_MAPS, namespace, "ours")
        assert stale
        control_plane.kubectl(
            "patch", "configmap", "ours", "-n", namespace, "-p", '{"data": {"theirs": "1"}}'
        )
        path = CONFIG_MAPS.path(namespace, "ours")
        with pytest.raises(ApiError) as error:
            await writer._own_by_apply(client, CONFIG_MAPS, path, stale)
        assert error.value.code == 409

    asyncio.run(scenario())


def test_an_apply_with_the_uid_of_an_object_that_is_gone_creates_nothing(
    client: Client, namespace: str
) -> None:
    async def scenario() -> None:
        (refusal,) = (
            await carry_out(
                client, [Apply(content=a_config_map_with(namespace, a="1"), uid="gone")]
            )
        ).refused
        assert (refusal.code, refusal.passes) == (409, True)
        assert await client.get(CONFIG_MAPS, namespace, "ours") is None

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "cache",
    [CacheClaim(claim="hub"), CacheClaim(storage="1024Gi", storage_class="fast"), None],
    ids=["shared", "own", "none"],
)
def test_nothing_of_a_group_seems_to_drift_when_it_has_been_stored(
    control_plane: ControlPlane, client: Client, namespace: str, cache: CacheClaim | None
) -> None:
    deployment = a_deployment(
        owner=an_owner(namespace=namespace),
        cache=cache,
        served_name="llama",
        load_format="safetensors",
    )
    (group,) = of_kind(render(a_plan(), deployment).objects, "StatefulSet")
    rendered = {
        **group,
        "metadata": {
            key: value for key, value in group["metadata"].items() if key != "ownerReferences"
        },
    }

    path = f"/apis/apps/v1/namespaces/{namespace}/statefulsets"
    ours = {"fieldManager": "shardwright"}
    control_plane.api.request("POST", path, dict(rendered), query=ours)
    live = control_plane.api.get(f"{path}/{group['metadata']['name']}")

    assert drifted_fields(rendered, live) == ()
    assert removed_fields(asyncio.run(as_stored(client, rendered)), live) == ()

    (engine, *others) = group["spec"]["template"]["spec"]["containers"]
    less = {**engine, "env": engine["env"][1:]}
    pod = {**group["spec"]["template"]["spec"], "containers": [less, *others]}
    template = {**group["spec"]["template"], "spec": pod}
    wanted = {**rendered, "spec": {**rendered["spec"], "template": template}}
    assert removed_fields(asyncio.run(as_stored(client, wanted)), live) == (
        f"spec.template.spec.containers[engine].env[{engine['env'][0]['name']}]",
    )
