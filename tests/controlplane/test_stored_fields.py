"""What the API server stores of what is sent, field by field, and whether it lets the pods into a
restricted namespace.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from shardwright.cluster.access import open_access
from shardwright.cluster.client import Client
from shardwright.cluster.writer import Writer
from shardwright.engines.registry import ENGINES
from shardwright.layouts.layout import Layout
from shardwright.reconcile.quotas import Allowance, ceilings, read_ranges
from shardwright.reconcile.writes import Create
from shardwright.rendering import ray
from shardwright.rendering.bundle import of_kind
from shardwright.rendering.deployment import Deployment
from shardwright.rendering.render import render
from tests.harness.api import ApiError
from tests.harness.compute_domains import NvidiaDriver
from tests.harness.controlplane import ControlPlane
from tests.harness.waiting import wait_for
from tests.support.builders_deployment import a_plan_of, an_owner
from tests.support.parts import with_parts
from tests.support.stored import (
    IMAGE_VOLUME,
    NATIVE,
    PATHS,
    ROUTED,
    differences,
    objects_of,
    pods,
    runnable,
    stored,
)

pytestmark = pytest.mark.controlplane

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


def test_what_is_sent_here_is_every_kind_of_object_and_every_way_to_join_pods() -> None:
    launches = (*runnable(), NATIVE, ROUTED)

    assert {item["kind"] for launch in launches for item in objects_of(launch, "models")} == set(
        PATHS
    ) - {"Pod"}
    assert {
        (launch.deployment.engine, launch.plan.nodes_per_replica > 1) for launch in launches
    } == {(engine, over_pods) for engine in ENGINES for over_pods in (False, True)}
    assert any(ray.joins(launch.plan, launch.deployment) for launch in launches)


def test_every_field_of_every_object_is_stored_as_it_is_sent(
    control_plane: ControlPlane, namespace: str
) -> None:
    assert len(runnable()) > 20
    with NvidiaDriver(control_plane, ()):
        assert differences(control_plane.api, namespace, (*runnable(), ROUTED)) == {}


def test_fields_of_native_groups_are_stored_only_where_their_feature_gates_are_on(
    control_plane: ControlPlane, gated: ControlPlane, namespace: str
) -> None:
    assert differences(gated.api, "default", (NATIVE,)) == {}
    (group,) = (item for item in objects_of(NATIVE, namespace) if item["kind"] == "StatefulSet")
    assert (
        "schedulingGroup"
        not in stored(control_plane.api, group, namespace)["spec"]["template"]["spec"]
    )


def test_an_image_volume_is_stored_as_it_is_sent(
    control_plane: ControlPlane, namespace: str
) -> None:
    assert differences(control_plane.api, namespace, (IMAGE_VOLUME,)) == {}


def test_the_operator_finds_a_field_that_is_dropped_and_creates_nothing(
    control_plane: ControlPlane, namespace: str
) -> None:
    bundle = render(NATIVE.plan, replace(NATIVE.deployment, owner=an_owner(namespace=namespace)))
    (group,) = of_kind(bundle.objects, "StatefulSet")
    client = Client(open_access(control_plane.kubeconfig), threads=2)
    try:
        outcome = asyncio.run(Writer(client, lambda _: None).carry_out([Create(content=group)]))
    finally:
        client.close()
    (refusal,) = outcome.refused
    assert refusal.problem is not None
    assert refusal.problem.code == "FieldDropped"
    assert refusal.problem.gap == "but the API server drops spec.template.spec.schedulingGroup"
    assert (
        control_plane.api.get(f"/apis/apps/v1/namespaces/{namespace}/statefulsets")["items"] == []
    )


def test_the_pod_of_every_template_is_let_into_a_restricted_namespace(
    control_plane: ControlPlane,
) -> None:
    """Enforcement happens on pods: a StatefulSet is only warned of. Nothing that is rendered needs
    more.
    """
    namespace = control_plane.create_namespace("restricted", RESTRICTED)
    refused = {}
    for name, pod in pods(namespace, (*runnable(), IMAGE_VOLUME)):
        try:
            stored(control_plane.api, pod, namespace)
        except ApiError as error:
            refused[name] = error.message
    control_plane.api.delete(f"/api/v1/namespaces/{namespace}")
    assert refused == {}


def test_a_pod_that_needs_more_is_not_let_into_a_restricted_namespace(
    control_plane: ControlPlane,
) -> None:
    """What the test before relies on: the namespace enforces."""
    namespace = control_plane.create_namespace("restricted-too", RESTRICTED)
    name, pod = next(pods(namespace, runnable()))
    pod["spec"]["containers"][0]["securityContext"]["capabilities"]["add"] = ["IPC_LOCK"]
    with pytest.raises(ApiError, match='violates PodSecurity "restricted:latest"'):
        stored(control_plane.api, pod, namespace)
    control_plane.api.delete(f"/api/v1/namespaces/{namespace}")
    assert name


def test_a_limit_range_goes_before_the_limits_of_every_template_which_it_would_not_let_in(
    control_plane: ControlPlane, namespace: str
) -> None:
    most = {"memory": "50Gi", "ephemeral-storage": "4Ti"}
    content = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "half"}}
    limits = {"spec": {"limits": [{"type": "Container", "max": most}]}}
    made = control_plane.api.create(
        f"/api/v1/namespaces/{namespace}/limitranges", {**content, **limits}
    )
    own = runnable()[:1]
    told = with_parts(
        own[0].deployment, memory=None, ceilings=ceilings(Allowance(ranges=read_ranges(made)))
    )

    def limit(deployment: Deployment) -> str:
        ((_, pod),) = pods(
            namespace, (replace(own[0], plan=a_plan_of(Layout(tensor=8)), deployment=deployment),)
        )
        limit: str = stored(control_plane.api, pod, namespace)["spec"]["containers"][0][
            "resources"
        ]["limits"]["memory"]
        return limit

    assert wait_for(lambda: limit(told), 30, "the namespace's own limit") == "50Gi"
    with pytest.raises(
        ApiError, match="maximum memory usage per Container is 50Gi, but limit is 542Gi"
    ):
        limit(with_parts(told, ceilings=()))


def test_a_model_that_nobody_has_looked_at_is_stored_with_a_status_that_says_so(
    chart: ControlPlane, namespace: str
) -> None:
    """Else kstatus takes it for done; tests/gitops has what it makes of each status."""
    spec = {"model": {"id": "meta-llama/Llama-3.1-8B-Instruct"}}
    model = {
        "apiVersion": "shardwright.io/v1alpha1",
        "kind": "ShardedModel",
        "metadata": {"name": "llama"},
        "spec": spec,
    }
    created = chart.api.create(
        f"/apis/shardwright.io/v1alpha1/namespaces/{namespace}/shardedmodels", model
    )
    assert created["status"] == {"observedGeneration": -1}
