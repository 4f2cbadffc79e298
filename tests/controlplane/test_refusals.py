"""What the API server refuses the CLI refuses, and the other way round; both name the field.

The API server is asked with a dry run under strict field validation, which is what ``kubectl create
--dry-run=server --validate=strict`` sends.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from shardwright.api.conditions import Condition, ConditionType, Reason, set_condition
from shardwright.api.manifest import read_manifests
from shardwright.api.plan_status import plan_status
from shardwright.api.resource import parse_manifest
from shardwright.api.rules import RULES
from shardwright.api.schema import crd, spec_schema, status_schema
from shardwright.errors import InputError
from shardwright.reconcile.findings import Findings
from shardwright.reconcile.model_status import build_status
from tests.harness.api import ApiError
from tests.harness.controlplane import ControlPlane
from tests.harness.waiting import wait_for
from tests.support.builders_reporting import a_report
from tests.support.builders_resource import Manifest, a_sharded_model, complete_specs
from tests.support.failing_groups import failing_groups
from tests.support.rule_cases import RULE_CASES
from tests.support.schema_cases import boundary_values, nulls, unknown_fields, violations

pytestmark = pytest.mark.controlplane

CRD_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CRD_NAME = "shardedmodels.shardwright.io"
SELECTOR = "shardwright.io/model=llama,apps.kubernetes.io/pod-index=0"
RESOURCES = "/apis/shardwright.io/v1alpha1/namespaces/default/shardedmodels"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether something is accepted, and the paths (or the text) of what is wrong with it."""

    accepted: bool
    paths: frozenset[str] = frozenset()
    text: str = ""


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane with the CRD; it is removed again, unless the chart has brought it before
    us.
    """
    brought = _install_crd(control_plane)
    yield control_plane
    if brought:
        control_plane.api.delete(f"{CRD_PATH}/{CRD_NAME}")
        wait_for(lambda: not _has_crd(control_plane), 60, "the CRD is gone")


def test_both_refuse_what_breaks_a_bound(cluster: ControlPlane) -> None:
    wrong = {}
    for case in violations():
        server, ours = both_verdicts(cluster, a_sharded_model() | {"spec": case.spec})
        if case.path not in server.paths & ours.paths:
            wrong[case.name] = (server, ours)

    assert wrong == {}


def test_both_refuse_unknown_fields(cluster: ControlPlane) -> None:
    wrong = {}
    for case in unknown_fields():
        server, ours = both_verdicts(cluster, a_sharded_model() | {"spec": case.spec})
        if f'unknown field "{case.path}"' not in server.text or case.path not in ours.paths:
            wrong[case.name] = (server, ours)

    assert wrong == {}


def test_both_say_the_same_of_boundary_values_and_nulls(cluster: ControlPlane) -> None:
    wrong = {}
    for case in [*boundary_values(), *nulls()]:
        server, ours = both_verdicts(cluster, a_sharded_model() | {"spec": case.spec})
        if (server.accepted, server.paths) != (ours.accepted, ours.paths):
            wrong[case.name] = (server, ours)

    assert wrong == {}


def test_both_refuse_what_breaks_a_rule_between_fields(cluster: ControlPlane) -> None:
    wrong = []
    for case in RULE_CASES:
        server, ours = both_verdicts(cluster, a_sharded_model(**case.broken))
        if server.accepted or ours.accepted or not _same_rule(case.code, server, ours):
            wrong.append((case, server, ours))

    assert wrong == []


def _same_rule(code: str, server: Verdict, ours: Verdict) -> bool:
    rules = [rule for rule in RULES if rule.code == code and rule.message in server.text]
    # Of a rule in figures the API server knows no numbers: the way out alone is the same.
    said = [rule.message.rpartition("; ")[2] if rule.figures else rule.message for rule in rules]
    return len(said) == 1 and said[0] in ours.text and ours.paths == server.paths


def test_both_accept_what_keeps_a_rule_between_fields(cluster: ControlPlane) -> None:
    wrong = []
    for case in RULE_CASES:
        said = both_verdicts(cluster, a_sharded_model(**case.kept))
        if said != (Verdict(accepted=True), Verdict(accepted=True)):
            wrong.append((case, said))

    assert wrong == []


def a_cache(**cache: str) -> Manifest:
    return {"weights": {"cache": cache}}


SMALL = a_cache(storage="10Gi")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, a_cache(claimName="shared")),
        (a_cache(claimName="shared"), {"weights": {"uri": "pvc://weights"}}),
        (SMALL, SMALL | {"servedName": "other"}),
        ({}, SMALL),
        (SMALL, a_cache(claimName="shared")),
        (SMALL, a_cache(storage="20Gi")),
    ],
)
def test_everything_about_the_weights_may_change(
    cluster: ControlPlane, namespace: str, before: Manifest, after: Manifest
) -> None:
    assert update_verdict(cluster, namespace, a_sharded_model(), before, after).accepted


@pytest.mark.parametrize("spec", complete_specs())
def test_both_accept_a_spec_with_every_field(cluster: ControlPlane, spec: Manifest) -> None:
    manifest = a_sharded_model() | {"spec": spec}

    assert both_verdicts(cluster, manifest) == (Verdict(accepted=True), Verdict(accepted=True))


def test_the_status_of_a_thousand_failing_groups_is_stored_and_leaves_room_for_the_rest(
    cluster: ControlPlane, namespace: str
) -> None:
    path = f"/apis/shardwright.io/v1alpha1/namespaces/{namespace}/shardedmodels"
    found = Findings(generation=1, standing=failing_groups(1000))
    live = cluster.api.request("POST", path, a_sharded_model(namespace=namespace))

    live |= {"status": build_status((), found, None, {}, datetime.now(UTC))}
    stored = cluster.api.request("PUT", f"{path}/{live['metadata']['name']}/status", live)

    assert len(stored["status"]["groups"]) == 1000
    assert len(json.dumps(stored)) < 700_000  # with who owns which field; etcd takes 1.5 MiB


def test_the_api_server_fills_in_the_defaults_that_the_parser_assumes(
    cluster: ControlPlane,
) -> None:
    manifest = a_sharded_model()

    stored = cluster.api.request("POST", RESOURCES, manifest, query={"dryRun": "All"})

    assert (
        parse_manifest(stored | {"metadata": manifest["metadata"]}).spec
        == parse_manifest(manifest).spec
    )
    assert "replicas" not in stored["spec"]
    assert stored["spec"]["workload"] == {
        "inputTokens": 2048,
        "outputTokens": 512,
        "prefixCacheHitPercent": 0,
    }


def test_the_scale_subresource_answers_on_the_smallest_manifest(
    cluster: ControlPlane, namespace: str
) -> None:
    cluster.kubectl("create", "-f", "-", input=json.dumps(a_sharded_model(namespace=namespace)))

    cluster.kubectl("scale", "smodel/llama", "--replicas=3", "-n", namespace)

    path = f"/apis/shardwright.io/v1alpha1/namespaces/{namespace}/shardedmodels/llama"
    assert cluster.api.get(f"{path}/scale")["spec"] == {"replicas": 3}
    assert cluster.api.get(path)["spec"]["replicas"] == 3


def test_the_resource_is_found_by_its_short_name_and_its_category(
    cluster: ControlPlane, namespace: str
) -> None:
    cluster.kubectl("create", "-f", "-", input=json.dumps(a_sharded_model(namespace=namespace)))

    by_short_name = cluster.kubectl("get", "smodel", "-n", namespace, "-o", "name")
    by_category = cluster.kubectl("get", "inference", "-n", namespace, "-o", "name")

    assert by_short_name == by_category == "shardedmodel.shardwright.io/llama\n"


def test_a_status_with_everything_in_it_is_accepted_and_kept_as_it_is(
    cluster: ControlPlane, namespace: str
) -> None:
    path = f"{RESOURCES.replace('default', namespace)}/llama"
    cluster.api.create(
        path.removesuffix("/llama"), a_sharded_model(namespace=namespace, replicas=1)
    )
    ready = Condition(
        type=ConditionType.READY, status=False, reason=Reason.PROGRESSING, observed_generation=1
    )
    failure = {"rank": 1, "container": "engine", "exitCode": 137, "reason": "OOMKilled"}
    group = {
        "name": "llama-0",
        "ready": False,
        "nodes": ["n0", ""],
        "waiting": "pods",
        "restarts": 2,
        "lastFailure": failure,
    }
    status = {
        "observedGeneration": 1,
        "conditions": list(set_condition((), ready, now=datetime(2026, 1, 2, tzinfo=UTC))),
        "summary": ["tensor 8 x pipeline 2 on 16 GPUs of h100"],
        "layout": "TP8·PP2",
        "ready": "0/1",
        "gpus": plan_status(a_report())["gpus"],
        "plan": plan_status(a_report()),
        "groups": [group],
        "replicas": 1,
        "readyReplicas": 0,
        "selector": SELECTOR,
        "endpoint": f"http://llama.{namespace}.svc:8000",
    }

    query = {"fieldValidation": "Strict"}
    content_type = "application/merge-patch+json"
    cluster.api.request(
        "PATCH", f"{path}/status", {"status": status}, query=query, content_type=content_type
    )

    assert cluster.api.get(path)["status"] == status
    assert cluster.api.get(f"{path}/scale")["status"] == {"replicas": 1, "selector": SELECTOR}
    row = cluster.kubectl("get", "smodel", "-n", namespace, "--no-headers").split()
    plan = plan_status(a_report())
    assert row[:5] == ["llama", "0/1", "Progressing", "TP8·PP2", str(plan["gpus"])]


def test_the_table_shows_the_columns(cluster: ControlPlane, namespace: str) -> None:
    cluster.kubectl("create", "-f", "-", input=json.dumps(a_sharded_model(namespace=namespace)))

    narrow = cluster.kubectl("get", "smodel", "-n", namespace).splitlines()[0].split()
    wide = cluster.kubectl("get", "smodel", "-n", namespace, "-o", "wide").splitlines()[0].split()

    assert narrow == ["NAME", "READY", "REASON", "LAYOUT", "GPUS", "AGE"]
    assert set(wide) - set(narrow) == {"MODEL", "POOL", "TOK/S", "ENDPOINT"}


def test_explain_has_a_text_for_every_field(cluster: ControlPlane) -> None:
    schemas = (("spec", spec_schema()), ("status", status_schema()))
    paths = [path for root, schema in schemas for path in _object_paths(schema, root)]

    for path in paths:
        explained = cluster.kubectl("explain", f"smodel.{path}")

        assert "<empty>" not in explained, path
        assert "DESCRIPTION:" in explained, path


def test_the_manifest_reader_reads_yaml_as_kubectl_does(cluster: ControlPlane) -> None:
    text = """
apiVersion: shardwright.io/v1alpha1
kind: ShardedModel
metadata: {name: yaml}
spec:
  model:
    id: a/b
    config:
      words: [yes, No, on, y, n, "yes", true, ~, null, Null]
      integers: [10, -3, +4, 010, 0o17, 0x1F, 0b11, 1_000, 0, 08]
      floats: [1.0, 1.5, 1e3, 1e-05, .5, 1., 1e21, 1.0e+2, -0.0]
      text: [12:30, 2020-01-01, 1.2.3, 0x, 1e, "1", =, 1_000.5, 0.33.0]
      merged: &base {a: 1, b: 2}
      other: {<<: *base, b: 3}
      1: number
      true: truth
  replicas: 2.0
"""

    printed = cluster.kubectl(
        "create", "--dry-run=server", "--validate=strict", "-o", "json", "-f", "-", input=text
    )

    (ours,) = read_manifests(text)
    theirs = json.loads(printed)["spec"]
    assert ours["spec"]["model"]["config"] == theirs["model"]["config"]
    assert repr(_without_order(ours["spec"]["model"]["config"])) == repr(
        _without_order(theirs["model"]["config"])
    )
    assert ours["spec"]["replicas"] == theirs["replicas"] == 2


def both_verdicts(cluster: ControlPlane, manifest: Manifest) -> tuple[Verdict, Verdict]:
    """Return that of the API server and ours."""
    return server_verdict(cluster, manifest), our_verdict(manifest)


def server_verdict(cluster: ControlPlane, manifest: Manifest) -> Verdict:
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    try:
        cluster.api.request("POST", RESOURCES, manifest, query=query)
    except ApiError as error:
        return Verdict(
            accepted=False, paths=frozenset(_paths_in(error.message)), text=error.message
        )
    return Verdict(accepted=True)


def update_verdict(
    cluster: ControlPlane, namespace: str, manifest: Manifest, before: Manifest, after: Manifest
) -> Verdict:
    """Return the verdict on a change of ``spec.model`` of a resource that is made for it and
    deleted again.
    """
    path = RESOURCES.replace("default", namespace)
    spec, own = manifest["spec"], {**manifest["metadata"], "namespace": namespace}
    stored = cluster.api.create(
        path, manifest | {"metadata": own, "spec": spec | {"model": spec["model"] | before}}
    )
    try:
        changed = stored | {"spec": stored["spec"] | {"model": spec["model"] | after}}
        cluster.api.request(
            "PUT",
            f"{path}/{own['name']}",
            changed,
            query={"dryRun": "All", "fieldValidation": "Strict"},
        )
    except ApiError as error:
        return Verdict(
            accepted=False, paths=frozenset(_paths_in(error.message)), text=error.message
        )
    finally:
        cluster.api.delete(f"{path}/{own['name']}")
    return Verdict(accepted=True)


def our_verdict(manifest: Manifest) -> Verdict:
    try:
        parse_manifest(manifest)
    except InputError as error:
        paths = frozenset(problem.path for problem in error.problems)
        return Verdict(accepted=False, paths=paths, text=str(error))
    return Verdict(accepted=True)


def _paths_in(message: str) -> Iterator[str]:
    """Yield the fields of an ``Invalid`` message: `… is invalid: [spec.a: …, spec.b: …, <nil>:
    …]`.
    """
    for part in message.replace("[spec", " spec").split():
        if part.startswith("spec") and part.endswith(":"):
            yield part.removesuffix(":")


def _object_paths(schema: dict[str, Any], path: str) -> Iterator[str]:
    yield path
    for name, child in schema.get("properties", {}).items():
        yield from _object_paths(child.get("items", child), f"{path}.{name}")


def _install_crd(control_plane: ControlPlane) -> bool:
    if _has_crd(control_plane):
        return False
    control_plane.api.create(CRD_PATH, crd())
    wait_for(lambda: _is_established(control_plane), 30, "the resource is served")
    return True


def _has_crd(control_plane: ControlPlane) -> bool:
    return any(
        item["metadata"]["name"] == CRD_NAME for item in control_plane.api.get(CRD_PATH)["items"]
    )


def _is_established(control_plane: ControlPlane) -> bool:
    conditions = (
        control_plane.api.get(f"{CRD_PATH}/{CRD_NAME}").get("status", {}).get("conditions") or []
    )
    return any(item["type"] == "Established" and item["status"] == "True" for item in conditions)


def _without_order(value: Any) -> Any:
    return json.loads(json.dumps(value, sort_keys=True))
