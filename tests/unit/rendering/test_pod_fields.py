"""The chart's admission policies let the operator write the fields of pods that it renders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml

from shardwright.api.resource import parse_manifest
from shardwright.errors import InputError
from shardwright.pipeline.assembly import bundle_for
from shardwright.rendering.deployment import Owner
from shardwright.rendering.fetch_job import Fetcher, HubFetch, fetch_job
from shardwright.resolving.model import Question
from shardwright.resolving.subject import resolve
from tests.support.builders_chart import CHART
from tests.support.builders_resource import a_sharded_model
from tests.support.builders_subject import ADMITTING
from tests.support.stored import IMAGE_VOLUME, NATIVE, ROUTED, objects_of, runnable
from tests.unit.api.test_every_field_has_an_effect import BEFORE_AND_AFTER, ON_TWO_NODES

ADDED: Final = ("pod.dnsPolicy", "pod.serviceAccount", "container.terminationMessagePath")
"""By the API server, beside ``probe.successThreshold``; that it takes all that is rendered is shown
in ``controlplane/test_token.py``.
"""


@pytest.mark.long("it resolves a spec for each field")
def test_policies_let_the_operator_write_the_fields_that_it_renders_and_no_others() -> None:
    listed = yaml.safe_load((CHART / "files" / "pod-fields.yaml").read_text())
    rendered = {
        f"{part}.{field}" for pod in _pods() for part, value in _parts(pod) for field in value
    }

    said = [f"{part}.{field}" for part, fields in listed.items() for field in fields]
    assert sorted(said) == sorted({*rendered, *ADDED, "probe.successThreshold"})


def _parts(pod: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "pod", pod
    yield "podSecurity", pod["securityContext"]
    for container in (*pod["containers"], *pod.get("initContainers", ())):
        yield "container", container
        yield "containerSecurity", container["securityContext"]
        for name in ("livenessProbe", "readinessProbe", "startupProbe"):
            yield "probe", container.get(name, {})


def _pods() -> Iterator[dict[str, Any]]:
    for launch in (*runnable(), NATIVE, IMAGE_VOLUME, ROUTED):
        yield from _of(objects_of(launch, "models"))
    fetch = HubFetch(
        fetcher=Fetcher(image="registry.example/operator:1", pull_policy="Always"),
        model="a/b",
        revision=None,
        hub_token=None,
        environment=(),
        pull_secrets=(),
    )
    yield from _of([fetch_job(Owner(name="m", namespace="models", uid="1"), fetch)])
    for _, spec in BEFORE_AND_AFTER.values():
        yield from _of_spec(spec)


def _of_spec(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    question = Question(resource=parse_manifest(a_sharded_model(**spec)), settings=ADMITTING)
    try:
        subject = resolve(question)
    except InputError:
        # A config that is elsewhere: what it says is in no field of a pod.
        return
    yield from _of(map(dict, bundle_for(subject, ON_TWO_NODES).objects))


def _of(objects: Any) -> Iterator[dict[str, Any]]:
    for item in objects:
        if item["kind"] in {"StatefulSet", "Deployment", "Job"}:
            yield item["spec"]["template"]["spec"]
