"""What makes a new plan necessary."""

import json
from typing import Any

import pytest

from shardwright.modelspec.config_json import CONFIG_FILE, QUANTIZATION_FILE, folder_text
from shardwright.resolving.model import Question
from shardwright.resolving.subject import resolve
from tests.support.builders_resource import A_CONFIG, complete_specs
from tests.support.builders_subject import a_resource, a_subject


@pytest.mark.parametrize(
    "spec",
    [
        {"paused": True},
        {"mode": "PlanOnly"},
        {"replan": "Always"},
        {"restart": {"budget": 1}},
        {"rollout": {"maxUnavailable": 3}},
        {"readiness": {"tokens": False}},
    ],
)
def test_what_to_do_with_a_plan_makes_no_new_plan_necessary(spec: dict[str, Any]) -> None:
    assert a_subject(**spec).input_hash == a_subject().input_hash


A_VOLUME = {"name": "own", "mountPath": "/mnt/own", "configMap": {"name": "files"}}


@pytest.mark.parametrize(
    ("pod", "planned", "restarted"),
    [
        ({"labels": {"team": "a"}}, False, True),
        ({"annotations": {"example.com/team": "a"}}, False, True),
        ({"serviceAccountName": "reader"}, False, True),
        ({"volumes": [A_VOLUME]}, False, True),
        ({"imagePullPolicy": "Always"}, False, False),
        ({"topologySpread": {"topologyKey": "topology.kubernetes.io/zone"}}, True, False),
        ({"runtimeClassName": "nvidia"}, True, True),
        ({"runtimeClassName": "nvidia", "labels": {"team": "a"}}, True, True),
    ],
)
@pytest.mark.parametrize("before", [{}, {"resources": {"cpu": "8"}}], ids=["no pod", "a pod"])
def test_a_field_of_the_pod_plans_and_restarts_what_it_must(
    before: dict[str, Any], pod: dict[str, Any], *, planned: bool, restarted: bool
) -> None:
    was, now = (a_subject(**({"pod": before} if before else {})), a_subject(pod=before | pod))

    assert (was.input_hash != now.input_hash, was.cut_hash != now.cut_hash) == (planned, planned)
    assert (was.deployment.groups.asked != now.deployment.groups.asked) is restarted


def test_every_other_field_makes_a_new_plan_necessary() -> None:
    complete = complete_specs()[0]
    names = set(complete) - {"paused", "mode", "replan", "restart", "rollout", "readiness", "model"}

    hashes = [a_subject(**{name: complete[name]}).input_hash for name in sorted(names)]

    assert len({a_subject().input_hash, *hashes}) == len(names) + 1


def test_another_config_makes_a_new_plan_necessary() -> None:
    resource = a_resource(model={"id": "me/mine", "configMapRef": {"name": "mine"}})
    texts = (json.dumps(A_CONFIG), json.dumps(A_CONFIG | {"num_hidden_layers": 7}))

    first, second = (resolve(Question(resource=resource, config_text=text)) for text in texts)

    assert first.input_hash != second.input_hash
    assert first.cut_hash != second.cut_hash


@pytest.mark.parametrize(
    ("algorithm", "new_plan"), [("NVFP4", True), (None, False)], ids=["quantized", "unquantized"]
)
def test_a_quantization_file_beside_the_config_changes_pods_through_the_plan_alone(
    algorithm: str | None, *, new_plan: bool
) -> None:
    resource = a_resource(model={"id": "me/mine", "configMapRef": {"name": "mine"}})
    files = {CONFIG_FILE: json.dumps(A_CONFIG)}
    both = {**files, QUANTIZATION_FILE: json.dumps({"quantization": {"quant_algo": algorithm}})}

    alone, beside = (
        resolve(Question(resource=resource, config_text=folder_text(each)))
        for each in (files, both)
    )

    assert alone.deployment.groups.asked == beside.deployment.groups.asked
    assert (alone.input_hash != beside.input_hash) is new_plan
    assert (alone.cut_hash != beside.cut_hash) is new_plan


@pytest.mark.parametrize(
    ("said", "without"),
    [
        ({}, None),
        ({"uri": "hf://org/name"}, None),
        (
            {"uri": "hf://org/name", "secretRef": {"name": "a", "key": "token"}},
            {"secretRef": {"name": "a"}},
        ),
    ],
)
def test_to_write_a_default_of_the_weights_down_plans_and_restarts_nothing(
    said: dict[str, Any], without: dict[str, Any] | None
) -> None:
    model = {"id": "org/name", "config": A_CONFIG}

    long = a_subject(model=model | {"weights": said})
    short = a_subject(model=model | ({"weights": without} if without else {}))

    assert (long.input_hash, long.cut_hash) == (short.input_hash, short.cut_hash)
    assert long.deployment.groups.asked == short.deployment.groups.asked


def test_the_number_of_replicas_alone_keeps_the_cut() -> None:
    one, two = a_subject(), a_subject(replicas=2)

    assert one.input_hash != two.input_hash
    assert one.cut_hash == two.cut_hash


def test_a_load_is_planned_anew_and_asks_for_no_other_pods() -> None:
    one, other = a_subject(), a_subject(workload={"requestsPerSecond": 50, "inputTokens": 100})

    assert one.cut_hash != other.cut_hash
    assert one.deployment.groups.asked == other.deployment.groups.asked


def test_to_say_what_holds_of_serving_anyway_restarts_nothing() -> None:
    said = a_subject(serving={"overload": "Queue"})

    assert said.deployment.groups.asked == a_subject().deployment.groups.asked
    assert said.input_hash == a_subject().input_hash


def test_scaling_reaches_no_pod_and_cuts_nothing_anew() -> None:
    plain, scaled = a_subject(), a_subject(scaling={"maxReplicas": 4})

    assert scaled.deployment.groups.asked == plain.deployment.groups.asked
    assert (scaled.cut_hash, scaled.input_hash != plain.input_hash) == (plain.cut_hash, True)
