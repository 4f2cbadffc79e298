"""What the chart tells Prometheus to scrape is there: labels, ports and annotations as installed
and as rendered.
"""

from collections.abc import Iterator

import pytest
import yaml

from shardwright.cluster.permissions import AUDIENCE
from shardwright.rendering.bundle import of_kind
from shardwright.rendering.deployment import Deployment
from shardwright.rendering.labels import POD_INDEX
from shardwright.rendering.render import render
from tests.harness.api import ApiError, Manifest
from tests.harness.controlplane import ControlPlane
from tests.harness.waiting import wait_for
from tests.support.builders_chart import CHART, ROOT, named
from tests.support.builders_chart import render as render_chart
from tests.support.builders_deployment import (
    a_deployment,
    a_plan,
    a_trtllm_deployment,
    an_sglang_deployment,
)

CRDS = ROOT / "tests" / "data" / "prometheus_operator"
MONITORS = "/apis/monitoring.coreos.com/v1"
PAGE = (ROOT / "docs" / "howto" / "monitoring.md").read_text()


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane) -> list[Manifest]:
    return render_chart(
        control_plane,
        *(
            f"--set=metrics.{what}.enabled=true"
            for what in ("serviceMonitor", "podMonitor", "prometheusRule")
        ),
    )


def test_the_service_of_the_operator_is_found_in_the_namespace_that_it_is_installed_in(
    installed: list[Manifest],
) -> None:
    service, said = named(installed, "Service"), named(installed, "ServiceMonitor")
    assert said["metadata"]["namespace"] == service["metadata"]["namespace"]
    assert said["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert said["spec"]["endpoints"][0]["port"] in {
        port["name"] for port in service["spec"]["ports"]
    }


def test_prometheus_brings_a_token_where_it_is_asked_for_one(
    installed: list[Manifest], control_plane: ControlPlane
) -> None:
    asked = (
        "--set=metrics.authentication=TokenReview",
        "--set=metrics.serviceMonitor.enabled=true",
    )
    (plain,) = named(installed, "ServiceMonitor")["spec"]["endpoints"]
    (endpoint,) = named(render_chart(control_plane, *asked), "ServiceMonitor")["spec"]["endpoints"]
    file = endpoint.pop("bearerTokenFile")

    assert endpoint == plain
    assert f"mountPath: {file.removesuffix('/token')}}}" in PAGE
    assert f"serviceAccountToken: {{path: token, audience: {AUDIENCE}}}" in PAGE


@pytest.mark.parametrize(
    ("deployment", "name"),
    [
        (a_deployment(), "vllm"),
        (an_sglang_deployment(), "sglang"),
        (a_trtllm_deployment(), "trtllm"),
    ],
)
def test_the_leaders_of_an_engine_are_found_and_nobody_else(
    installed: list[Manifest], deployment: Deployment, name: str
) -> None:
    (group,) = of_kind(render(a_plan(), deployment).objects, "StatefulSet")
    template = group["spec"]["template"]
    said = named(installed, "PodMonitor")["spec"]
    wanted = dict(said["selector"]["matchLabels"])
    assert wanted.pop(POD_INDEX) == "0"
    (engines,) = said["selector"]["matchExpressions"]
    assert (engines["key"], engines["operator"]) == ("app.kubernetes.io/name", "In")
    # The chart scrapes the first two, the page tells of the other.
    assert name in engines["values"] or f"app.kubernetes.io/name: {name}" in PAGE
    assert (wanted | {"app.kubernetes.io/name": name}).items() <= template["metadata"][
        "labels"
    ].items()
    (endpoint,) = said["podMetricsEndpoints"]
    assert endpoint["port"] in {port["name"] for port in template["spec"]["containers"][0]["ports"]}


def test_the_labels_of_a_target_are_those_of_our_series(installed: list[Manifest]) -> None:
    (group,) = of_kind(render(a_plan(), a_deployment()).objects, "StatefulSet")
    found = group["spec"]["template"]["metadata"]
    known = {
        f"__meta_kubernetes_pod_annotation_{_as_label(key)}": value
        for key, value in found["annotations"].items()
    }
    known |= {
        f"__meta_kubernetes_pod_label_{_as_label(key)}": value
        for key, value in found["labels"].items()
    }
    (endpoint,) = named(installed, "PodMonitor")["spec"]["podMetricsEndpoints"]
    labels = {
        rule["targetLabel"]: known[rule["sourceLabels"][0]] for rule in endpoint["relabelings"]
    }
    assert labels == {"name": "llama-405b", "group": "llama-405b-0"}


def test_the_rules_are_those_that_are_tried_with_promtool(installed: list[Manifest]) -> None:
    tried = yaml.safe_load((CHART / "files" / "rules.yaml").read_text())
    assert named(installed, "PrometheusRule")["spec"] == tried


@pytest.fixture(scope="module")
def prometheus_operator(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The API server with the Prometheus operator's own CustomResourceDefinitions."""
    files = [f"--filename={file}" for file in sorted(CRDS.glob("*.yaml"))]
    control_plane.kubectl("create", *files)
    served = {"podmonitors", "prometheusrules", "servicemonitors"}
    wait_for(
        lambda: served <= {item["name"] for item in control_plane.api.get(MONITORS)["resources"]},
        60,
        "the kinds to be served",
    )
    control_plane.create_namespace("watched")
    yield control_plane
    control_plane.kubectl("delete", "--wait=false", *files)


EVERYTHING = (
    "serviceMonitor.enabled=true",
    "podMonitor.enabled=true",
    "prometheusRule.enabled=true",
)
MONITORED = {
    "as delivered": EVERYTHING,
    "with a token": (*EVERYTHING, "authentication=TokenReview"),
    "with labels": (
        *EVERYTHING,
        *(
            f"{kind}.labels.release=prometheus"
            for kind in ("serviceMonitor", "podMonitor", "prometheusRule")
        ),
    ),
}


@pytest.mark.parametrize("how", MONITORED)
@pytest.mark.parametrize(
    "further",
    [(), ("--set=watchNamespaces={models,others}",)],
    ids=["all namespaces", "some namespaces"],
)
def test_the_prometheus_operators_own_definitions_take_every_field(
    prometheus_operator: ControlPlane, how: str, further: tuple[str, ...]
) -> None:
    flags = (*(f"--set=metrics.{value}" for value in MONITORED[how]), *further)
    objects = render_chart(prometheus_operator, *flags, namespace="watched")
    monitored = [item for item in objects if item["apiVersion"] == "monitoring.coreos.com/v1"]

    stored = [_stored(prometheus_operator, item) for item in monitored]

    assert sorted(item["kind"] for item in stored) == [
        "PodMonitor",
        "PrometheusRule",
        "ServiceMonitor",
    ]
    assert [item["spec"] for item in stored] == [item["spec"] for item in monitored]
    where = named(stored, "PodMonitor")["spec"]["namespaceSelector"]
    assert where == ({"matchNames": ["models", "others"]} if further else {"any": True})


def test_a_field_that_the_prometheus_operator_does_not_know_is_refused(
    prometheus_operator: ControlPlane, installed: list[Manifest]
) -> None:
    """So what the test above says is worth something."""
    monitor = named(installed, "ServiceMonitor")
    wrong = {**monitor, "spec": {**monitor["spec"], "endpoint": []}}

    with pytest.raises(ApiError, match=r'unknown field "spec\.endpoint"'):
        _stored(prometheus_operator, wrong)


def _stored(control_plane: ControlPlane, item: Manifest) -> Manifest:
    """Return what the API server would store of an object, every field of which it must know."""
    path = (
        f"{MONITORS}/namespaces/watched/{item['kind'].lower()}s?dryRun=All&fieldValidation=Strict"
    )
    metadata = {**item["metadata"], "namespace": "watched"}
    stored: Manifest = control_plane.api.create(path, {**item, "metadata": metadata})
    return stored


def _as_label(key: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in key)
