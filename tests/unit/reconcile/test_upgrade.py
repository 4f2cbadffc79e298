"""A release of the operator restarts nothing: groups keep the pods that they have while what is
asked of them is the same.
"""

from functools import cache
from json import dumps, loads
from typing import Any

import pytest

from shardwright.api.record import encode
from shardwright.api.resource import parse_manifest
from shardwright.engines.vllm.releases import NEWEST_DEFAULT
from shardwright.reconcile.record_object import StoredRecord
from shardwright.reconcile.record_trust import kept_version
from shardwright.reconcile.writes import ended_groups
from shardwright.rendering import pod as rendering
from shardwright.rendering import pod_resources
from shardwright.rendering.bundle import ASKED_HASH, TEMPLATE_HASH
from shardwright.rendering.fixes import Fix
from shardwright.rendering.guards import GUARDS
from shardwright.resolving.model import Question
from shardwright.resolving.subject import Subject, resolve
from tests.support.builders_reconcile import a_record, crashed
from tests.support.builders_resource import a_sharded_model
from tests.support.builders_snapshot import ONE_NODE, TWO_NODES, Operator
from tests.support.landed import SETTLED
from tests.support.said import condition_in
from tests.support.small_cluster import Refuses, SmallCluster


def uids(operator: Operator) -> set[str]:
    return {pod["metadata"]["uid"] for pod in operator.cluster.pods.values()}


def hashes(operator: Operator) -> set[str]:
    return {pod["metadata"]["labels"][TEMPLATE_HASH] for pod in operator.cluster.pods.values()}


def written_hashes(operator: Operator) -> set[str]:
    return {
        item["spec"]["template"]["metadata"]["labels"][TEMPLATE_HASH]
        for item in operator.cluster.sets().values()
    }


def serving(**spec: Any) -> Operator:
    """Return an operator whose model serves."""
    return _served(dumps(spec, sort_keys=True), rendering.PROBE_TIMEOUT_SECONDS).fork()


@cache
def _served(spec: str, release: int) -> Operator:  # noqa: ARG001 - it renders other pods
    cluster = SmallCluster()
    cluster.add_nodes(4)
    operator = Operator(cluster, loads(spec))
    assert condition_in(operator.run(SETTLED).status, "Ready")["reason"] == "Serving"
    return operator


def release(monkeypatch: pytest.MonkeyPatch, probe_timeout_seconds: int) -> None:
    """Let the operator be of a release that renders another timeout of probes: 5 seconds is this
    one's.
    """
    monkeypatch.setattr(rendering, "PROBE_TIMEOUT_SECONDS", probe_timeout_seconds)


def test_a_group_that_fails_comes_back_as_this_release_renders_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator = serving(**TWO_NODES)
    older = hashes(operator)
    release(monkeypatch, 6)
    operator.run(60)
    operator.cluster.put(crashed("llama-0-1"))

    published = operator.run(SETTLED)

    assert hashes(operator).isdisjoint(older)
    assert hashes(operator) == written_hashes(operator)
    assert condition_in(published.status, "RolloutPending")["status"] == "False"


@pytest.mark.parametrize("spec", [{}, ONE_NODE | {"replicas": 3}, TWO_NODES | {"replicas": 2}])
def test_upgrade_downgrade_and_upgrade_restart_nothing(
    spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = serving(**spec)
    before, own = uids(operator), written_hashes(operator)

    for seconds, pending in ((6, "True"), (5, "False"), (6, "True")):
        release(monkeypatch, seconds)
        published = operator.run(SETTLED)
        assert uids(operator) == before
        assert condition_in(published.status, "RolloutPending")["status"] == pending
        assert (written_hashes(operator) == own) is (pending == "False")


def test_pods_from_before_the_guard_of_the_key_run_on_and_say_so_until_they_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as before:
        before.setattr(rendering, "guards_for", lambda _deployment: ())
        operator = serving(**TWO_NODES, engine={"apiKeySecretRef": {"name": "clients"}})
        older = uids(operator)

    pending = condition_in(operator.run(SETTLED).status, "RolloutPending")

    assert uids(operator) == older
    assert (pending["status"], pending["reason"]) == ("True", "GuardMissing")
    assert pending["message"].startswith(
        "llama-0: made by a release without a guard of this one; until they restart, some paths of "
        "the engine take requests without the API key, and requests can have media fetched from "
        "any host, if the model takes media, and the engine can write the weights in its cache, or "
        "has the token of the hub; llama-0: rendered by another release"
    )
    operator.cluster.put(crashed("llama-0-1"))
    assert condition_in(operator.run(SETTLED).status, "RolloutPending")["status"] == "False"
    assert {pod["metadata"]["labels"][GUARDS] for pod in operator.cluster.pods.values()} == {
        "key.media.files"
    }


def marks(operator: Operator) -> list[str]:
    return [
        item["metadata"]["annotations"].get(ASKED_HASH, "")
        for item in operator.cluster.sets().values()
    ]


def lose_marks(operator: Operator) -> None:
    """Take away what the StatefulSets say of the request for their pods."""
    for item in operator.cluster.sets().values():
        del item["metadata"]["annotations"][ASKED_HASH]
    operator.cluster.version += 1


def cached(storage: str) -> dict[str, Any]:
    """Return a model whose pods have caches of a size."""
    return {"id": "meta-llama/Llama-3.1-8B-Instruct", "weights": {"cache": {"storage": storage}}}


@pytest.mark.parametrize("seconds", [5, 6], ids=["this release", "another release"])
@pytest.mark.parametrize(
    "spec",
    [
        ONE_NODE | {"replicas": 3},
        TWO_NODES | {"replicas": 2},
        ONE_NODE | {"rollout": {"maxSurge": 1}},
    ],
    ids=["one node", "two nodes", "surge"],
)
def test_a_serving_group_whose_mark_was_removed_by_hand_is_not_restarted_and_gets_it_again(
    spec: dict[str, Any], seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = serving(**spec)
    before, said = uids(operator), marks(operator)
    release(monkeypatch, seconds)
    operator.run(60)
    lose_marks(operator)

    published = operator.run(SETTLED)

    assert (ended_groups(operator.written), uids(operator)) == (frozenset(), before)
    assert marks(operator) == said
    assert condition_in(published.status, "Ready")["reason"] == "Serving"
    assert condition_in(published.status, "RolloutPending")["status"] == str(seconds == 6)


@pytest.mark.parametrize("paused", [False, True], ids=["at once", "after a pause"])
@pytest.mark.parametrize(
    ("spec", "change"),
    [
        (ONE_NODE, {"engine": {"image": "vllm/vllm-openai:v0.33.0-mended"}}),
        (TWO_NODES, {"engine": {"image": "vllm/vllm-openai:v0.33.0-mended"}}),
        (TWO_NODES | {"model": cached("100Gi")}, {"model": cached("200Gi")}),
    ],
    ids=["one node", "two nodes", "claims alone"],
)
def test_a_spec_that_changes_while_the_mark_is_gone_rolls(
    spec: dict[str, Any], change: dict[str, Any], *, paused: bool
) -> None:
    operator = serving(**spec)
    before, said = uids(operator), marks(operator)
    operator.edit(paused=paused)
    operator.reconcile()
    lose_marks(operator)
    operator.edit(**change)
    operator.run(3600 if paused else 0)
    assert not paused or uids(operator) == before
    operator.edit(paused=False)

    published = operator.run(SETTLED)

    assert uids(operator).isdisjoint(before)
    assert not {"", *said} & {*marks(operator)}
    assert condition_in(published.status, "Ready")["reason"] == "Serving"
    assert condition_in(published.status, "RolloutPending")["status"] == "False"


@pytest.mark.parametrize("spec", [ONE_NODE, TWO_NODES], ids=["one node", "two nodes"])
def test_a_mark_that_goes_during_a_pause_comes_back_after_it_and_nothing_restarts(
    spec: dict[str, Any],
) -> None:
    operator = serving(**spec)
    before, said = uids(operator), marks(operator)
    operator.edit(paused=True)
    operator.reconcile()
    lose_marks(operator)
    operator.run(3600)
    operator.edit(paused=False)

    operator.run(SETTLED)

    assert (uids(operator), marks(operator)) == (before, said)


def test_what_differs_is_said_by_field(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = serving()
    release(monkeypatch, 6)

    pending = condition_in(operator.run(SETTLED).status, "RolloutPending")

    probes = ", ".join(
        f"spec.containers[engine].{name}Probe.timeoutSeconds"
        for name in ("liveness", "readiness", "startup")
    )
    assert pending["message"] == (
        "llama-0: rendered by another release of the operator; "
        f"the next restart of a group changes {probes} of its pods"
    )


def test_a_single_pod_that_is_evicted_comes_back_as_this_release_renders_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator = serving()
    older = hashes(operator)
    release(monkeypatch, 6)
    operator.run(60)
    operator.cluster.end(operator.cluster.pods["llama-0-0"])

    published = operator.run(SETTLED)

    assert hashes(operator).isdisjoint(older)
    assert condition_in(published.status, "RolloutPending")["status"] == "False"


def test_a_template_that_somebody_edits_is_set_right_and_restarts_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator = serving(**TWO_NODES)
    before = uids(operator)
    release(monkeypatch, 6)
    operator.run(60)
    rendered = operator.cluster.sets()["llama-0"]["spec"]["template"]["spec"]["containers"][0][
        "image"
    ]
    operator.cluster.sets()["llama-0"]["spec"]["template"]["spec"]["containers"][0]["image"] = (
        "somebody/elses:image"
    )
    operator.cluster.version += 1

    operator.run(60)

    assert (
        operator.cluster.sets()["llama-0"]["spec"]["template"]["spec"]["containers"][0]["image"]
        == rendered
    )
    assert uids(operator) == before


def test_pods_of_a_group_that_are_still_missing_come_as_those_that_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = SmallCluster()
    cluster.add_nodes(2)
    operator = Operator(cluster, TWO_NODES)
    operator.reconcile()
    cluster.settle()
    older = hashes(operator)
    del cluster.pods["llama-0-1"]
    release(monkeypatch, 6)

    operator.reconcile()
    cluster.settle()
    operator.run(SETTLED)

    assert hashes(operator) == older
    assert not cluster.mixed


def test_another_objective_with_the_same_plan_leaves_pods_of_an_earlier_release(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator = serving(**ONE_NODE)
    before = uids(operator)
    release(monkeypatch, 6)
    operator.run(60)

    operator.edit(budget={"gpus": 8})
    operator.run(SETTLED)

    assert uids(operator) == before


def test_a_change_that_restarted_nothing_is_not_made_up_for_by_the_next_release(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator = serving(**ONE_NODE)
    before = uids(operator)
    operator.edit(placement={"tolerations": []})
    operator.run(60)
    release(monkeypatch, 6)

    operator.run(SETTLED)

    assert uids(operator) == before


def test_a_pause_after_a_failure_outlasts_a_release(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = serving(**TWO_NODES, restart={"delaySeconds": 300})
    for _ in range(2):
        operator.cluster.put(crashed("llama-0-1"))
        operator.run(60)
    release(monkeypatch, 6)

    operator.run(30)

    assert operator.cluster.sets()["llama-0"]["spec"]["replicas"] == 0


def test_roll_restarts_groups_one_after_another_as_this_release_renders_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator = serving(**ONE_NODE, replicas=3, rollout={"onUpgrade": "Roll"})
    before = uids(operator)
    release(monkeypatch, 6)

    fewest = 3
    for _ in operator.moments(600):
        fewest = min(fewest, len(operator.cluster.serving()))

    assert fewest == 2
    assert uids(operator).isdisjoint(before)
    assert hashes(operator) == written_hashes(operator)


def test_roll_asked_for_later_takes_on_what_was_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = serving(**ONE_NODE, replicas=2)
    before = uids(operator)
    release(monkeypatch, 6)
    operator.run(60)
    assert uids(operator) == before

    operator.edit(rollout={"onUpgrade": "Roll"})
    operator.run(SETTLED)

    assert uids(operator).isdisjoint(before)


def test_a_group_that_is_added_is_as_this_release_renders_it_and_the_others_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator = serving(**ONE_NODE, replicas=2)
    before = uids(operator)
    release(monkeypatch, 6)

    operator.edit(replicas=3)
    operator.run(SETTLED)

    assert before < uids(operator)
    assert len(uids(operator)) == 3


def subject(kept_version: str | None = None, **spec: Any) -> Subject:
    return resolve(
        Question(resource=parse_manifest(a_sharded_model(**spec)), kept_version=kept_version)
    )


def test_the_engine_version_that_was_chosen_by_default_stays_and_is_part_of_the_plan_of_record() -> (
    None
):
    found = subject("0.32.0")

    assert (found.default_version, found.deployment.engine_version) == ("0.32.0", "0.32.0")
    assert found.deployment.image == "vllm/vllm-openai:v0.32.0"
    assert found.input_hash != subject().input_hash
    kept = serving().kept
    assert kept
    assert kept.record.engine_version == NEWEST_DEFAULT


@pytest.mark.parametrize(
    "spec",
    [
        {"engine": {"version": "0.33.0"}},
        {"engine": {"image": "vllm/vllm-openai:v0.33.0"}},
        {
            "engine": {
                "name": "TensorRTLLM",
                "image": "registry.internal/nvidia/tensorrt-llm/release:1.2.1",
            }
        },
    ],
)
def test_what_the_spec_names_goes_before_it(spec: dict[str, Any]) -> None:
    assert subject("0.32.0", **spec) == subject(**spec)
    assert subject(**spec).default_version == ""


def test_an_engine_that_is_kept_says_what_the_newest_version_mends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator = serving()
    fix = Fix(
        id="CVE-1",
        what="a request could end it",
        source="https://example.com/1",
        engine="vLLM",
        version="0.34.0",
    )
    monkeypatch.setattr("shardwright.rendering.fixes.known_fixes", lambda: (fix,))
    assert condition_in(operator.run(SETTLED).status, "RolloutPending")["status"] == "False"

    monkeypatch.setattr("shardwright.reconcile.publish.NEWEST_DEFAULT", "0.34.0")
    operator.edit(replicas=2)
    pending = condition_in(operator.run(SETTLED).status, "RolloutPending")

    assert (pending["status"], pending["reason"]) == ("True", "OlderEngine")
    assert pending["message"] == (
        "vLLM 0.33.0 is kept as it was planned; 0.34.0 is the default of this release, and comes "
        "with spec.engine.version or "
        "rollout.onUpgrade: Roll; that fixes CVE-1 (a request could end it, https://example.com/1)"
    )


def test_with_roll_the_engine_follows_the_newest_version() -> None:
    assert subject("0.32.0", rollout={"onUpgrade": "Roll"}).default_version == NEWEST_DEFAULT


@pytest.mark.parametrize(
    ("said", "signed", "serial", "kept"),
    [
        ("0.32.0", True, 3, "0.32.0"),
        ("0.32.0", None, 0, "0.32.0"),
        ("0.32.0", None, 3, None),
        ("0.32.0", False, 3, None),
        (NEWEST_DEFAULT, True, 3, None),
        ("", True, 3, None),
    ],
)
def test_only_a_version_that_we_have_signed_is_kept_once_there_are_signatures(
    *, said: str, signed: bool | None, serial: int, kept: str | None
) -> None:
    stored = StoredRecord(text=encode(a_record(engine_version=said)), signed=signed)

    assert kept_version(stored, None, serial) == kept
    assert kept_version(None, a_record(engine_version=said), serial) == (
        None if said != "0.32.0" else "0.32.0"
    )


def test_a_rollout_that_comes_to_nothing_at_zero_leaves_no_pods_of_the_wrong_spec_behind() -> None:
    operator = serving(**TWO_NODES)
    asked = dict(operator.spec)
    operator.edit(engine={"env": [{"name": "NCCL_DEBUG", "value": "INFO"}]})
    while not ended_groups(operator.written):
        operator.reconcile()
    operator.edit(engine={"args": {"no-such-option": "1"}})
    operator.run(SETTLED)

    operator.spec = asked
    operator.edit()
    published = operator.run(SETTLED)

    assert condition_in(published.status, "RolloutPending")["status"] == "False"
    assert hashes(operator) == written_hashes(operator)
    assert "NCCL_DEBUG" not in str(operator.cluster.sets())


def test_a_restart_that_is_asked_for_takes_no_group_down_whose_new_scripts_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator = serving(**TWO_NODES)
    release(monkeypatch, 6)
    monkeypatch.setattr(pod_resources, "LAST_WORDS_SECONDS", 31)
    operator.cluster.refuses.append(Refuses(kind="ConfigMap"))
    before = uids(operator)
    operator.annotations["shardwright.io/restart"] = "now"

    operator.run(SETTLED)

    assert uids(operator) == before


def test_a_group_that_had_its_secret_starts_again_where_no_more_secrets_may_be_created() -> None:
    operator = serving(**TWO_NODES)
    operator.cluster.refuses.append(Refuses(kind="Secret"))
    operator.cluster.put(crashed("llama-0-1"))

    published = operator.run(SETTLED)

    assert condition_in(published.status, "Ready")["reason"] == "Serving"
    assert [item["spec"]["replicas"] for item in operator.cluster.sets().values()] == [2]


def test_one_pod_that_crashes_again_and_again_is_made_as_this_release_renders_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator = serving(**ONE_NODE)
    older = hashes(operator)
    release(monkeypatch, 6)
    operator.run(60)
    operator.cluster.pods["llama-0-0"]["status"] = crashed("llama-0-0", ready=False)["status"]

    operator.run(SETTLED)

    assert hashes(operator).isdisjoint(older)
