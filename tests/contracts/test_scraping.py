"""What the page on metrics tells Prometheus to scrape is there: labels, ports and annotations as installed and as rendered."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from shardwright.rendering.deployment import Deployment
from shardwright.rendering.labels import POD_INDEX
from shardwright.rendering.render import render
from tests.support.builders_deployment import a_deployment, a_plan, a_trtllm_deployment

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "reference" / "metrics.md").read_text()


def monitor(kind: str) -> dict[str, Any]:
    (block,) = (part.split("```")[0] for part in PAGE.split("```yaml\n")[1:])
    (found,) = (item for item in yaml.safe_load_all(block) if item["kind"] == kind)
    return dict(found)


def test_the_service_of_the_operator_is_found_in_the_namespace_that_it_is_installed_in() -> None:
    installed = list(yaml.safe_load_all((ROOT / "manifests" / "install.yaml").read_text()))
    (service,) = (item for item in installed if item["kind"] == "Service")
    said = monitor("ServiceMonitor")
    assert said["metadata"]["namespace"] == service["metadata"]["namespace"]
    assert said["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert said["spec"]["endpoints"][0]["port"] in {port["name"] for port in service["spec"]["ports"]}


@pytest.mark.parametrize(("deployment", "name"), [(a_deployment(), "vllm"), (a_trtllm_deployment(), "trtllm")])
def test_the_leaders_of_an_engine_are_found_and_nobody_else(deployment: Deployment, name: str) -> None:
    (group,) = render(a_plan(), deployment).of_kind("StatefulSet")
    template = group["spec"]["template"]
    said = monitor("PodMonitor")["spec"]
    wanted = dict(said["selector"]["matchLabels"])
    assert wanted.pop(POD_INDEX) == "0"
    assert wanted.pop("app.kubernetes.io/name") == "vllm"
    assert f"app.kubernetes.io/name: {name}" in PAGE
    assert (wanted | {"app.kubernetes.io/name": name}).items() <= template["metadata"]["labels"].items()
    (endpoint,) = said["podMetricsEndpoints"]
    assert endpoint["port"] in {port["name"] for port in template["spec"]["containers"][0]["ports"]}


def test_the_labels_of_a_target_are_those_of_our_series() -> None:
    (group,) = render(a_plan(), a_deployment()).of_kind("StatefulSet")
    found = group["spec"]["template"]["metadata"]
    known = {f"__meta_kubernetes_pod_annotation_{_as_label(key)}": value for key, value in found["annotations"].items()}
    known |= {f"__meta_kubernetes_pod_label_{_as_label(key)}": value for key, value in found["labels"].items()}
    (endpoint,) = monitor("PodMonitor")["spec"]["podMetricsEndpoints"]
    labels = {rule["targetLabel"]: known[rule["sourceLabels"][0]] for rule in endpoint["relabelings"]}
    assert labels == {"name": "llama-405b", "group": "llama-405b-0"}


def _as_label(key: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in key)
