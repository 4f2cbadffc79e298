"""A rollback restores the pods that were good, whatever another release makes of them."""

import copy
from collections.abc import Mapping
from typing import Any

import pytest

from shardwright.hardware.untrusted import whole_bytes
from shardwright.reconcile.writes import DropRevision, KeepRevision
from shardwright.rendering import network, place, pod_resources
from shardwright.rendering import pod as rendering
from shardwright.rendering.bundle import TEMPLATE_HASH
from shardwright.rendering.labels import GROUP
from shardwright.rendering.names import LEADER_VARIABLE
from shardwright.units import GIB
from tests.support.builders_snapshot import ONE_NODE, TWO_NODES, Operator
from tests.support.changed_engines import GOOD, HANGS
from tests.support.going_back import (
    ROLL_BACK,
    SETTLED,
    ask,
    condition,
    ready,
    revisions,
    rolled_back,
    serving,
    three_groups,
    uids,
    variables,
)


def release(monkeypatch: pytest.MonkeyPatch, seconds: int) -> None:
    """Let the operator be of a release that renders probes and scripts otherwise: 5 s is this
    one's.
    """
    monkeypatch.setattr(rendering, "PROBE_TIMEOUT_SECONDS", seconds)
    monkeypatch.setattr(pod_resources, "LAST_WORDS_SECONDS", 25 + seconds)


def templates(operator: Operator) -> dict[str, str]:
    """Return the hash of the template of each pod, by name."""
    pods = operator.cluster.pods.items()
    return {name: pod["metadata"]["labels"][TEMPLATE_HASH] for name, pod in pods}


def scripts(operator: Operator) -> dict[str, Mapping[str, str]]:
    """Return by pod the scripts that it mounts."""
    found = {}
    for name, pod in operator.cluster.pods.items():
        volumes = {item["name"]: item for item in pod["spec"]["volumes"]}
        key = "ConfigMap", volumes["scripts"]["configMap"]["name"]
        found[name] = operator.cluster.objects[key]["data"]
    return found


def stands(operator: Operator) -> tuple[dict[str, str], dict[str, Mapping[str, str]]]:
    return templates(operator), scripts(operator)


def kept(operator: Operator) -> int:
    return sum(isinstance(write, KeepRevision) for write in operator.written)


@pytest.mark.parametrize("spec", [ONE_NODE, TWO_NODES], ids=["one node", "two nodes"])
def test_a_change_that_fails_goes_back_to_template_and_scripts_of_the_release_before(
    monkeypatch: pytest.MonkeyPatch, spec: dict[str, Any]
) -> None:
    operator = serving(4, **spec, replicas=2, rollout=ROLL_BACK)
    good, made = stands(operator), uids(operator)
    release(monkeypatch, 6)
    operator.run(SETTLED)
    assert uids(operator) == made

    operator.edit(engine=HANGS)
    operator.run(200)
    assert templates(operator) != good[0]
    operator.run(2 * SETTLED)

    assert rolled_back(operator) == ("True", "ProgressDeadlineExceeded")
    assert stands(operator) == good
    assert operator.cluster.serving().keys() == {"llama-0", "llama-1"}
    others = {name for name, uid in uids(operator).items() if made[name] == uid}
    assert others == {name for name in made if name.startswith("llama-1")}


def test_a_request_for_a_revision_brings_its_pods_and_the_next_change_those_of_this_release(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator = three_groups()
    good = stands(operator)
    release(monkeypatch, 6)
    operator.edit(engine=GOOD)
    operator.run(SETTLED)
    assert revisions(operator) == [(1, False), (2, True)]

    ask(operator, "1")
    operator.run(SETTLED)
    assert (stands(operator), ready(operator)) == (good, ("True", "Serving"))
    assert revisions(operator) == [(2, False), (3, True)]

    ask(operator, "spec")
    operator.run(SETTLED)
    assert set(variables(operator).values()) == {"INFO"}
    assert {probe_timeout(pod) for pod in operator.cluster.pods.values()} == {6}


def probe_timeout(pod: Mapping[str, Any]) -> int:
    container = pod["spec"]["containers"][0]
    return int(container["readinessProbe"]["timeoutSeconds"])


def test_what_is_gone_back_to_is_rendered_for_where_its_groups_are_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator = serving(4, **ONE_NODE, replicas=2)
    good = scripts(operator)["llama-0-0"]
    operator.edit(engine=GOOD)
    operator.run(SETTLED)
    gone = operator.cluster.pods["llama-0-0"]["spec"]["nodeName"]
    release(monkeypatch, 6)
    operator.cluster.delete_node(gone)
    operator.run(SETTLED)

    ask(operator, "1")
    operator.run(SETTLED)

    assert (ready(operator), rolled_back(operator)) == (("True", "Serving"), ("True", "Asked"))
    assert {probe_timeout(pod) for pod in operator.cluster.pods.values()} == {5}
    assert [*scripts(operator).values()] == [good, good]
    assert operator.cluster.pods["llama-0-0"]["spec"]["nodeName"] != gone


def test_pods_of_this_release_are_what_is_gone_back_to_once_all_groups_have_served_with_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator = three_groups(**ROLL_BACK)
    release(monkeypatch, 6)
    operator.run(SETTLED)
    assert (revisions(operator), kept(operator)) == ([(1, True)], 1)

    operator.annotations = {"shardwright.io/restart": "now"}
    operator.cluster.version += 1
    operator.run(3 * SETTLED)
    assert (revisions(operator), kept(operator)) == ([(2, True)], 2)
    assert sum(isinstance(write, DropRevision) for write in operator.written) == 1
    assert len(operator.cluster.revisions) == 1
    written = list(operator.written)
    operator.run(SETTLED)
    assert operator.written == written

    good = stands(operator)
    operator.edit(engine=HANGS)
    operator.run(2 * SETTLED)
    assert (rolled_back(operator)[0], stands(operator)) == ("True", good)


def test_a_revision_that_serves_with_pods_of_two_releases_keeps_none_until_all_are_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator = serving(4, **ONE_NODE, replicas=2)
    release(monkeypatch, 6)
    operator.edit(budget={"gpus": 24})
    operator.run(SETTLED)
    assert revisions(operator) == [(1, False), (2, True)]
    assert "pods" not in operator.status["revisions"][1]

    operator.annotations = {"shardwright.io/restart": "now"}
    operator.cluster.version += 1
    operator.run(2 * SETTLED)
    assert revisions(operator) == [(1, False), (3, True)]
    assert operator.status["revisions"][1]["pods"]


def test_what_follows_from_the_place_of_restored_pods_is_as_this_release_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator = serving(4, **TWO_NODES, replicas=2, rollout=ROLL_BACK)
    release(monkeypatch, 6)
    monkeypatch.setattr(place, "peers_service", lambda group: f"{group}-ranks")
    operator.edit(engine=HANGS)
    operator.run(2 * SETTLED)
    assert rolled_back(operator)[0] == "True"
    assert variables(operator)["llama-0-0"] is None
    container = operator.cluster.pods["llama-0-0"]["spec"]["containers"][0]
    told = {item["name"]: item.get("value") for item in container["env"]}
    assert told[LEADER_VARIABLE].startswith("llama-0-0.llama-0-ranks.")
    assert probe_timeout(operator.cluster.pods["llama-0-0"]) == 5
    assert scripts(operator)["llama-0-0"] == scripts(operator)["llama-1-0"]


@pytest.mark.parametrize("most", [200, 600])
def test_limits_of_restored_pods_are_as_the_namespace_has_them_by_now(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    operator = serving(4, **ONE_NODE, replicas=2, rollout=ROLL_BACK)
    before = memory_limit(operator)
    release(monkeypatch, 6)
    limit = pod_resources.host_memory_limit_bytes
    monkeypatch.setattr(
        pod_resources, "host_memory_limit_bytes", lambda *of, **how: limit(*of, **how) + GIB
    )
    operator.limit(memory=f"{most}Gi")
    operator.edit(engine=HANGS)
    operator.run(2 * SETTLED)
    assert rolled_back(operator)[0] == "True"
    assert operator.cluster.serving().keys() == {"llama-0", "llama-1"}
    assert probe_timeout(operator.cluster.pods["llama-0-0"]) == 5
    assert memory_limit(operator) == min(before, most * GIB)


def memory_limit(operator: Operator) -> int:
    container = operator.cluster.pods["llama-0-0"]["spec"]["containers"][0]
    return whole_bytes(container["resources"]["limits"]["memory"])


def test_the_peers_service_that_another_release_made_for_a_single_pod_goes_with_the_pod() -> None:
    operator = serving(4, **ONE_NODE, replicas=2)
    before = uids(operator)
    peers = copy.deepcopy(operator.cluster.objects["Service", "llama"])
    peers["metadata"]["name"] = "llama-0-peers"
    peers["metadata"]["labels"][GROUP] = "llama-0"
    peers["spec"] |= {"clusterIP": "None", "publishNotReadyAddresses": True}
    operator.cluster.objects["Service", "llama-0-peers"] = peers
    operator.cluster.version += 1
    operator.written.clear()

    operator.run(SETTLED)
    assert (operator.written, uids(operator)) == ([], before)

    operator.edit(engine=GOOD)
    operator.run(2 * SETTLED)
    assert set(uids(operator).values()).isdisjoint(before.values())
    assert ("Service", "llama-0-peers") not in operator.cluster.objects


def test_a_group_of_two_pods_that_keeps_its_template_keeps_their_service_whatever_is_lost() -> None:
    wide = {**ONE_NODE, "parallelism": {"tensor": 8, "pipeline": 2}}
    operator = serving(4, **wide, replicas=2)
    operator.edit(parallelism={"tensor": 8}, rollout={"partition": 2})
    operator.run(SETTLED)
    assert len(uids(operator)) == 4

    operator.cluster.pods.clear()
    operator.cluster.version += 1
    operator.run(2 * SETTLED)

    assert (ready(operator)[0], len(uids(operator))) == ("True", 4)
    assert {name for kind, name in operator.cluster.objects if kind == "Service"} == {
        "llama",
        "llama-0-peers",
        "llama-1-peers",
    }


class TestAReleaseWhosePodsDoNotComeUp:
    def hangs(self, monkeypatch: pytest.MonkeyPatch, word: str = "WARN") -> None:
        """Let the operator be of a release whose engines do not come up, or end (``TRACE``)."""
        monkeypatch.setattr(network, "environment", lambda _: {"NCCL_DEBUG": word})

    @pytest.mark.parametrize("spec", [ONE_NODE, TWO_NODES], ids=["one node", "two nodes"])
    def test_the_rollout_of_a_bad_release_is_taken_back_to_the_pods_of_the_one_before(
        self, monkeypatch: pytest.MonkeyPatch, spec: dict[str, Any]
    ) -> None:
        rollout = {**ROLL_BACK, "onUpgrade": "Roll"}
        operator = serving(4, **spec, replicas=2, rollout=rollout)
        good, made = stands(operator), uids(operator)
        self.hangs(monkeypatch)

        operator.run(3 * SETTLED)

        assert rolled_back(operator) == ("True", "ProgressDeadlineExceeded")
        assert ready(operator) == ("False", "RolledBack")
        assert "with pods of an earlier release" in condition(operator, "Ready")["message"]
        assert stands(operator) == good
        others = {name for name, uid in uids(operator).items() if made[name] == uid}
        assert others == {name for name in made if name.startswith("llama-1")}
        assert (revisions(operator), kept(operator)) == ([(1, True)], 1)

    def test_a_restart_that_brings_a_bad_release_is_taken_back(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        operator = serving(4, **TWO_NODES, replicas=2, rollout=ROLL_BACK)
        good, made = stands(operator), uids(operator)
        self.hangs(monkeypatch, "TRACE")
        operator.run(60)
        assert uids(operator) == made
        operator.cluster.end(operator.cluster.pods["llama-1-0"])
        operator.run(2 * SETTLED)
        assert (rolled_back(operator), stands(operator)) == (("True", "EngineFailed"), good)
        assert {name for name, uid in uids(operator).items() if made[name] == uid} == {
            "llama-0-0",
            "llama-0-1",
        }

    def test_a_rolled_back_release_is_retried_on_request(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        operator = serving(1, **ONE_NODE, rollout={**ROLL_BACK, "onUpgrade": "Roll"})
        good = stands(operator)
        self.hangs(monkeypatch)
        operator.run(3 * SETTLED)
        assert stands(operator) == good

        monkeypatch.undo()
        release(monkeypatch, 6)
        operator.run(SETTLED)
        assert stands(operator) == good
        ask(operator, "spec@1")
        operator.run(SETTLED)

        assert (ready(operator), rolled_back(operator)[0]) == (("True", "Serving"), "False")
        assert probe_timeout(operator.cluster.pods["llama-0-0"]) == 6
        assert revisions(operator) == [(2, True)]

    def test_groups_that_fail_with_pods_of_the_release_before_take_nothing_back(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        operator = three_groups(**ROLL_BACK)
        release(monkeypatch, 6)
        operator.run(60)
        pod = operator.cluster.pods["llama-1-0"]
        pod["spec"]["containers"][0]["env"] += HANGS["env"]
        operator.run(2 * SETTLED)
        assert rolled_back(operator) == ("False", "Idle")
