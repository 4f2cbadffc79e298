"""What ``diff`` says is what the operator would do: on groups that the operator's own rules have
brought up.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from shardwright import __version__
from shardwright.api.record import PlanRecord
from shardwright.cli.diff import (
    as_stored,
    changed_fields,
    difference_document,
    difference_lines,
    outcome_by_dry_run,
)
from shardwright.cli.live_models import LiveModel
from shardwright.cli.rehearsal import (
    Fate,
    ModelDifference,
    Rehearsal,
    Rehearsed,
    rehearse,
    rehearsed_of,
)
from shardwright.cli.surroundings import Surroundings
from shardwright.cluster.client import ApiError
from shardwright.reconcile.drift import LIST_KEYS
from shardwright.reconcile.group import ROLLBACK_TO
from shardwright.reconcile.revisions import Former, revisions_of
from shardwright.rendering.bundle import TEMPLATE_HASH
from shardwright.resolving.subject import Subject
from tests.support import scripted_api as scripted
from tests.support.builders_live import a_live_model, around
from tests.support.builders_snapshot import ONE_NODE, OWNER, TWO_NODES, Operator
from tests.support.builders_subject import a_resource
from tests.support.scripted_api import Answer
from tests.support.small_cluster import SmallCluster

TWO_GROUPS = {**ONE_NODE, "replicas": 2}


def serving(spec: dict[str, Any], nodes: int = 3) -> Operator:
    cluster = SmallCluster()
    cluster.add_nodes(nodes)
    operator = Operator(cluster, spec)
    operator.run(600)
    return operator


def _rehearsed(operator: Operator, **edit: Any) -> Rehearsed:
    """Return what would come of an edit, with nothing of the operator's left changed by it."""
    model, there = a_live_model(operator), around(operator)
    edited = operator.fork()
    edited.edit(**edit)
    return _of(edited, model, there)


def _of(operator: Operator, model: LiveModel, there: Surroundings) -> Rehearsed:
    subject = operator.subject
    assert isinstance(subject, Subject)
    return _outcome(rehearse(model, subject, there, operator.generation, operator.cluster.now))


def _outcome(found: Rehearsal) -> Rehearsed:
    """Return the outcome on an API server that adds nothing to what it is sent."""
    return rehearsed_of(found, found.applies)


def _fates(found: Rehearsed) -> dict[str, Fate]:
    return {group.name: group.fate for group in found.groups}


def test_nothing_changes_where_nothing_is_edited() -> None:
    found = _rehearsed(serving(TWO_GROUPS))

    assert _fates(found) == {"llama-0": Fate.STAYS, "llama-1": Fate.STAYS}
    assert found.objects == ()


def test_an_edit_of_the_pods_restarts_all_groups_though_one_after_another() -> None:
    operator = serving(TWO_GROUPS)
    found = _rehearsed(operator, engine={"env": [{"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"}]})

    assert _fates(found) == {"llama-0": Fate.RESTARTS, "llama-1": Fate.RESTARTS}
    assert [group.fields for group in found.groups] == [
        (
            "spec.containers[engine].env[VLLM_LOGGING_LEVEL]",
            "spec.initContainers[weights].env[VLLM_LOGGING_LEVEL]",
        )
    ] * 2
    assert found.start_seconds


def test_what_an_edit_takes_from_the_pods_is_named() -> None:
    engine = {"env": [{"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"}]}
    operator = serving({**TWO_GROUPS, "engine": engine, "pod": {"volumes": [A_VOLUME]}})
    (group, _) = _rehearsed(operator, engine={}, pod={}).groups

    assert (group.fate, group.fields) == (Fate.RESTARTS, group.removed)
    assert group.removed == (
        "spec.containers[engine].env[VLLM_LOGGING_LEVEL]",
        "spec.containers[engine].volumeMounts[/mnt/own]",
        "spec.volumes[own-own]",
        "spec.initContainers[weights].env[VLLM_LOGGING_LEVEL]",
    )


WEBHOOK = 'admission webhook "a.example" does not support dry run'


def _dry_run(found: Rehearsal, answer: Answer) -> Rehearsed:
    with scripted.serving(answer) as (_, client):
        return asyncio.run(outcome_by_dry_run(client.impatient(), found))


TO_ROLL = {**ONE_NODE, "rollout": {"onUpgrade": "Roll"}}


def _upgraded(operator: Operator) -> Rehearsal:
    """Return a rehearsal for pods of an earlier release, of which no field is known to differ."""
    model, subject = a_live_model(operator), operator.subject
    assert isinstance(subject, Subject)
    pods = []
    for pod in model.pods or ():
        labels = {**pod["metadata"]["labels"], TEMPLATE_HASH: "earlier"}
        pods.append({**pod, "metadata": {**pod["metadata"], "labels": labels}})
    there = around(operator)
    model = replace(model, pods=tuple(pods))
    return rehearse(model, subject, there, operator.generation, operator.cluster.now)


def test_what_could_not_be_compared_may_differ() -> None:
    operator = serving(TO_ROLL)
    found = _upgraded(operator)
    refused = _dry_run(found, Answer(403, {"message": "no right"}))
    difference = replace(a_difference(operator), rehearsed=_outcome(found))
    assert not difference.differs

    difference = replace(difference, rehearsed=refused)
    lines = [line.plain() for line in difference_lines(difference, 100)]

    assert difference.differs
    assert _fates(refused) == {"llama-0": Fate.UNKNOWN}
    assert lines[0] == "llama: 1 group may restart"
    assert "Fields that would be removed are not known: no right" in lines
    document = difference_document(difference)
    assert (document["differs"], document["refused"]) == (True, ["no right"])


def _filled_in(live: Any) -> Any:
    """Return a StatefulSet with the defaults of the API server that stand in its pods, too."""
    spec, template = live["spec"], live["spec"]["template"]
    containers = [
        {
            "imagePullPolicy": "IfNotPresent",
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            **one,
        }
        for one in template["spec"]["containers"]
    ]
    pod = {
        "dnsPolicy": "ClusterFirst",
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        **template["spec"],
        "containers": containers,
    }
    own = {"podManagementPolicy": "OrderedReady", "revisionHistoryLimit": 10}
    return {**live, "spec": {**own, **spec, "template": {**template, "spec": pod}}}


def _all_ours(value: Any, name: str = "") -> dict[str, Any]:
    """Return an object's fields as the API server has them down for whoever has created it."""
    if isinstance(value, dict):
        return {f"f:{key}": _all_ours(item, key) for key, item in value.items()}
    keys = ["containerPort", "protocol"] if name == "ports" else [LIST_KEYS.get(name)]
    if isinstance(value, list) and keys != [None]:
        return {
            f"k:{json.dumps({key: item[key] for key in keys})}": _all_ours(item) for item in value
        }
    return {}


def test_what_the_api_server_fills_in_is_never_removed() -> None:
    operator = serving(TO_ROLL)
    found = _upgraded(operator)
    key = "StatefulSet", "llama-0"
    live = _filled_in(found.model.objects[key])
    fields = {"f:spec": _all_ours(live["spec"])}
    managed = [{"manager": "shardwright", "operation": "Update", "fieldsV1": fields}]
    live = {**live, "metadata": {**live["metadata"], "managedFields": managed}}
    objects = {**found.model.objects, key: live}
    found = replace(found, model=replace(found.model, objects=objects))

    stored = _filled_in(found.applies[key])
    rehearsed = _dry_run(found, Answer(body=stored))

    assert (rehearsed.groups[0].fate, rehearsed.groups[0].fields) == (Fate.STAYS, ())
    assert not replace(a_difference(operator), rehearsed=rehearsed).differs
    unfilled = _outcome(found).groups[0].removed
    assert {
        "spec.dnsPolicy",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.containers[engine].terminationMessagePath",
    } <= set(unfilled)


@pytest.mark.parametrize(
    ("code", "message"), [(400, "bad"), (401, ""), (404, ""), (408, ""), (409, "")]
)
def test_a_dry_run_that_fails_otherwise_ends_the_command(code: int, message: str) -> None:
    found = _upgraded(serving(TO_ROLL))

    with pytest.raises(ApiError):
        _dry_run(found, Answer(code, {"message": message}))


@pytest.mark.parametrize(("code", "message"), [(403, "no"), (422, "no"), (400, WEBHOOK)])
def test_without_a_dry_run_it_is_said_that_what_would_be_removed_is_not_shown(
    code: int, message: str
) -> None:
    engine = {"env": [{"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"}]}
    operator = serving({**ONE_NODE, "engine": engine})
    model, there = a_live_model(operator), around(operator)
    operator.edit(engine={})
    subject = operator.subject
    assert isinstance(subject, Subject)
    found = rehearse(model, subject, there, operator.generation, operator.cluster.now)

    known = _dry_run(found, Answer(code, {"message": message}))

    assert (_fates(known), known.groups[0].removed) == ({"llama-0": Fate.RESTARTS}, ())
    assert known.refused == (message,)


def test_a_dry_run_asks_for_an_object_of_another_name_that_belongs_to_nobody() -> None:
    metadata = {
        "name": "llama-0",
        "namespace": "models",
        "labels": {"a": "b"},
        "ownerReferences": [{"uid": "1"}],
    }
    content = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata}
    with scripted.serving(Answer(body=content)) as (api, client):
        assert asyncio.run(as_stored(client, content)) == content

        ((method, path, body),) = api.requests
        assert (method, path.partition("?")[0]) == (
            "POST",
            "/apis/apps/v1/namespaces/models/statefulsets",
        )
        assert "dryRun=All" in path
        assert body["metadata"] == {
            "generateName": "shardwright-diff-",
            "labels": {"a": "b"},
            "annotations": None,
        }


def test_a_token_that_is_named_no_more_is_an_environment_variable_less() -> None:
    token = {"secretRef": {"name": "hub-token"}}
    model = {"id": "meta-llama/Llama-3.1-8B-Instruct"}
    operator = serving({**ONE_NODE, "model": {**model, "weights": token}})
    (group,) = _rehearsed(operator, model=model).groups

    assert group.removed == ("spec.initContainers[weights].env[HF_TOKEN]",)


def test_the_operator_does_what_was_said() -> None:
    operator = serving(TWO_GROUPS)
    edit = {"engine": {"env": [{"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"}]}}
    said = _rehearsed(operator, **edit)
    before = {name: pod["metadata"]["uid"] for name, pod in operator.cluster.pods.items()}
    operator.edit(**edit)
    operator.run(1200)
    after = {name: pod["metadata"]["uid"] for name, pod in operator.cluster.pods.items()}

    assert {f"{name}-0" for name in said.restarts} == {
        name for name in after if after[name] != before.get(name)
    }


A_VOLUME = {"name": "own", "mountPath": "/mnt/own", "configMap": {"name": "files"}}


@pytest.mark.parametrize(
    ("pod", "fate"),
    [
        ({"labels": {"team": "a"}}, Fate.RESTARTS),
        ({"volumes": [A_VOLUME]}, Fate.RESTARTS),
        ({"imagePullPolicy": "Always"}, Fate.STAYS),
        ({"topologySpread": {"topologyKey": "kubernetes.io/hostname"}}, Fate.STAYS),
    ],
)
def test_an_edit_restarts_groups_for_what_pods_have_and_for_nothing_else(
    pod: dict[str, Any], fate: Fate
) -> None:
    operator = serving(TWO_GROUPS)
    before = {name: item["metadata"]["uid"] for name, item in operator.cluster.pods.items()}

    said = _rehearsed(operator, pod=pod)
    operator.edit(pod=pod)
    operator.run(1200)
    after = {name: item["metadata"]["uid"] for name, item in operator.cluster.pods.items()}

    assert set(_fates(said).values()) == {fate}
    assert {name for name in after if after[name] == before.get(name)} == (
        set() if fate is Fate.RESTARTS else set(before)
    )


def test_more_replicas_start_and_fewer_end() -> None:
    operator = serving(TWO_GROUPS)

    assert _fates(_rehearsed(operator, replicas=3)) == {
        "llama-0": Fate.STAYS,
        "llama-1": Fate.STAYS,
        "llama-2": Fate.STARTS,
    }
    assert _fates(_rehearsed(operator, replicas=1)) == {"llama-0": Fate.STAYS, "llama-1": Fate.ENDS}


def test_groups_below_the_partition_keep_their_pods() -> None:
    operator = serving(TWO_GROUPS)
    engine = {"env": [{"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"}]}
    found = _rehearsed(operator, engine=engine, rollout={"partition": 1})

    assert _fates(found) == {"llama-0": Fate.KEEPS, "llama-1": Fate.RESTARTS}


def test_with_a_surge_the_next_generation_of_a_group_starts_beside_it() -> None:
    operator = serving(TWO_GROUPS)
    engine = {"env": [{"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"}]}
    found = _rehearsed(operator, engine=engine, rollout={"maxSurge": 1})

    assert _fates(found) == {"llama-0-g1": Fate.BESIDE, "llama-1": Fate.BESIDE}


def test_a_secret_that_only_the_operator_can_name_is_no_difference() -> None:
    operator = serving(TWO_NODES)
    (name,) = (name for kind, name in operator.cluster.objects if kind == "StatefulSet")
    live = operator.cluster.objects["StatefulSet", name]
    assert "llama-token-" in str(live)

    model = a_live_model(operator, rename=("llama-token-", "0123456789abcdef0123456789abcdef"))
    found = _of(operator, model, around(operator))

    assert _fates(found) == {name: Fate.STAYS}


def test_nothing_changes_of_a_model_of_which_no_revision_was_kept_yet() -> None:
    operator = serving(TWO_GROUPS)
    operator.status = {
        name: value for name, value in operator.status.items() if name != "revisions"
    }
    found = _rehearsed(operator)

    assert (_fates(found), found.objects) == ({"llama-0": Fate.STAYS, "llama-1": Fate.STAYS}, ())


def test_a_model_that_has_gone_back_stays_as_it_is_and_is_rehearsed_with_its_revision() -> None:
    operator = serving(TWO_GROUPS)
    ran = operator.subject
    operator.edit(engine={"env": [{"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"}]})
    operator.annotations = {ROLLBACK_TO: "1"}
    operator.run(600)
    (revision,) = revisions_of(operator.status)
    model = a_live_model(operator)

    former = Former(
        hash=revision.hash, subject=ran, plan=operator.kept.record.plan if operator.kept else None
    )
    knowing = replace(model, formers={revision.hash: former})
    found = _of(operator, knowing, around(operator))
    assert (_fates(found), found.objects) == ({"llama-0": Fate.STAYS, "llama-1": Fate.STAYS}, ())
    assert found.published.found.rollback

    unread = _of(operator, model, around(operator))
    assert [problem.code for problem in unread.published.found.problems] == ["RevisionUnusable"]


def test_what_fits_nowhere_ends_nothing() -> None:
    operator = serving(TWO_GROUPS)
    found = _rehearsed(operator, parallelism={"tensor": 8, "pipeline": 4}, replicas=2)

    assert set(_fates(found).values()) == {Fate.STAYS}
    assert found.published.found.no_plan is not None


def a_difference(operator: Operator, **edit: Any) -> ModelDifference:
    before, after = a_resource(**operator.spec), a_resource(**(operator.spec | edit))
    record = a_live_model(operator).record
    assert isinstance(record, PlanRecord)
    return ModelDifference(
        name=OWNER.name,
        namespace=OWNER.namespace,
        exists=True,
        fields=tuple(changed_fields(before, after)),
        plan_before=record.plan,
        rehearsed=_rehearsed(operator, **edit),
    )


def test_a_difference_in_words() -> None:
    operator = serving(TWO_GROUPS)
    lines = [one.plain() for one in difference_lines(a_difference(operator, replicas=1), 100)]

    assert lines == [
        "llama: 1 group ends",
        "Spec",
        "  FIELD          NOW  THEN",
        "  spec.replicas  2    1",
        "Plan",
        "  2 x TP8 on 16 NVIDIA-H100-80GB-HBM3 of 2 nodes becomes TP8 on 8 NVIDIA-H100-80GB-HBM3 of 1 node",
        "Groups",
        "  GROUP    WHAT   DOWN FOR  FIELDS OF ITS PODS",
        "  llama-0  stays  -         -",
        "  llama-1  ends   for good  -",
        "",
        f"As release {__version__} plans and renders; nothing was written.",
    ]


def test_a_difference_as_data() -> None:
    document = difference_document(a_difference(serving(TWO_GROUPS), replicas=1))

    assert document["differs"]
    assert document["spec"] == [{"path": "spec.replicas", "before": 2, "after": 1}]
    assert [(group["name"], group["fate"]) for group in document["groups"]] == [
        ("llama-0", "Stays"),
        ("llama-1", "Ends"),
    ]


def test_no_difference_is_said_in_one_line() -> None:
    difference = a_difference(serving(TWO_GROUPS))

    assert not difference.differs
    assert next(iter(difference_lines(difference, 100))).plain() == "llama: nothing changes"
