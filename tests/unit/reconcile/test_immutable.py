"""What an API server lets nobody change is never written: groups go on as their next generation,
other objects are made again.
"""

import copy
from functools import cache
from json import dumps, loads
from typing import Any

import pytest

from shardwright.reconcile.drift import as_it_can_be, made_anew
from shardwright.reconcile.writes import Apply, Create, Delete
from shardwright.rendering.bundle import ASKED_HASH
from tests.support.builders_snapshot import ONE_NODE, TWO_NODES, Operator
from tests.support.small_cluster import LOAD_SECONDS, SmallCluster

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
SMALL, LARGE = {"storage": "10Gi"}, {"storage": "20Gi"}


def a_set_with_a_cache(
    *,
    asked: str = "before",
    storage: str | None = "10Gi",
    storage_class: str | None = None,
    **spec: Any,
) -> dict[str, Any]:
    claim: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": storage}},
    }
    claim |= {"storageClassName": storage_class} if storage_class else {}
    claims = [{"metadata": {"name": "cache"}, "spec": claim}] if storage else []
    own = {
        "serviceName": "llama-0-peers",
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {"group": "llama-0"}},
    }
    return {
        "metadata": {"annotations": {ASKED_HASH: asked}},
        "spec": {**own, "volumeClaimTemplates": claims, **spec},
    }


@pytest.mark.parametrize(
    ("live", "fields"),
    [
        (a_set_with_a_cache(), ()),
        (a_set_with_a_cache(storage="10240Mi"), ()),
        (a_set_with_a_cache(replicas=0), ()),
        (a_set_with_a_cache(storage="20Gi"), ("volumeClaimTemplates",)),
        (a_set_with_a_cache(storage=None), ("volumeClaimTemplates",)),
        (a_set_with_a_cache(storage_class="fast"), ("volumeClaimTemplates",)),
        (a_set_with_a_cache(serviceName="other"), ("serviceName",)),
        (a_set_with_a_cache(podManagementPolicy="OrderedReady"), ("podManagementPolicy",)),
        (a_set_with_a_cache(selector={"matchLabels": {"group": "other"}}), ("selector",)),
    ],
    ids=[
        "the same",
        "said otherwise",
        "replicas",
        "size",
        "no claim before",
        "class goes",
        "peers",
        "policy",
        "selector",
    ],
)
def test_a_group_is_made_anew_for_what_never_changes_alone(
    live: dict[str, Any], fields: tuple[str, ...]
) -> None:
    assert made_anew(a_set_with_a_cache(asked="now"), live) == fields


def test_claims_that_are_wanted_no_more_are_a_change() -> None:
    wanted = a_set_with_a_cache(asked="now", storage=None)
    del wanted["spec"]["volumeClaimTemplates"]
    assert made_anew(wanted, a_set_with_a_cache()) == ("volumeClaimTemplates",)


def test_what_another_release_renders_otherwise_for_the_same_question_stays_as_it_is() -> None:
    rendered, live = (
        a_set_with_a_cache(storage="20Gi", replicas=2),
        a_set_with_a_cache(replicas=1),
    )
    assert made_anew(rendered, live) == ()
    assert as_it_can_be(rendered, live) == a_set_with_a_cache(replicas=2)
    asked_anew = a_set_with_a_cache(asked="now", storage="20Gi")
    assert as_it_can_be(asked_anew, live) == asked_anew


def in_a_queue(
    queue: str | None, asked: str = "before", *, cpu: str = "8", **pods: Any
) -> dict[str, Any]:
    engine = {
        "name": "engine",
        "resources": {"requests": {"cpu": cpu, "memory": "1Ti"}},
        "ports": [{"name": "http", "containerPort": 8000}],
    }
    told = {"shardwright.io/queue": queue} if queue else {}
    template = {"metadata": {"annotations": told}, "spec": {"containers": [engine], **pods}}
    return a_set_with_a_cache(asked=asked, template=template, replicas=2)


ELSEWHERE: dict[str, Any] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}


@pytest.mark.parametrize(
    ("live", "fields"),
    [
        (in_a_queue("serving"), ()),
        (in_a_queue("serving", cpu="8000m"), ()),
        (in_a_queue("serving", priorityClassName="low"), ()),
        (in_a_queue("serving", cpu="9"), ("containers",)),
        (in_a_queue("serving", affinity=ELSEWHERE), ("affinity",)),
        (in_a_queue("serving", tolerations=[{"key": "gpu"}]), ("tolerations",)),
        (in_a_queue("serving", initContainers=[{"name": "a"}]), ("initContainers",)),
        (in_a_queue("serving", nodeSelector={"a": "b"}), ("nodeSelector",)),
        (in_a_queue("other"), ("queue",)),
        (in_a_queue(None), ("queue",)),
    ],
    ids=[
        "the same",
        "said otherwise",
        "class",
        "requests",
        "nodes",
        "tolerations",
        "a container less",
        "a label less",
        "another queue",
        "no queue before",
    ],
)
def test_a_group_in_a_queue_of_kueue_is_made_anew_for_what_kueue_fixes(
    live: dict[str, Any], fields: tuple[str, ...]
) -> None:
    assert made_anew(in_a_queue("serving", asked="now"), live) == fields
    assert made_anew(in_a_queue("serving"), live) == ()  # the same is asked


def test_a_label_of_kueue_that_others_have_set_is_no_queue_of_ours() -> None:
    labelled = in_a_queue(None)
    labelled["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "default"}
    assert made_anew(in_a_queue(None, asked="now"), labelled) == ()


def test_a_release_changes_of_pods_in_a_queue_what_the_queue_lets_it() -> None:
    """Or their start would be refused, also after a failure; and what somebody else makes of the
    rest is put right.
    """
    live = in_a_queue("serving", tolerations=[{"key": "gpu"}])
    live["spec"]["template"]["spec"]["containers"][0]["image"] = "forged"
    other = in_a_queue("serving", cpu="9", priorityClassName="low")
    other["spec"]["template"]["spec"]["containers"][0]["image"] = "newer"

    pod = as_it_can_be(other, live)["spec"]["template"]["spec"]

    (engine,) = pod["containers"]
    assert engine["image"] == "newer"
    assert engine["resources"]["requests"]["cpu"] == "8"
    assert (pod["tolerations"], pod["priorityClassName"]) == ([{"key": "gpu"}], "low")
    same = in_a_queue("serving", priorityClassName="low")
    assert as_it_can_be(same, in_a_queue("serving")) == same


def test_a_container_that_comes_or_goes_waits_for_the_next_generation() -> None:
    live = in_a_queue("serving", initContainers=[{"name": "a"}])
    pod = as_it_can_be(in_a_queue("serving"), live)["spec"]["template"]["spec"]
    assert [one["name"] for one in pod["initContainers"]] == ["a"]
    fewer = as_it_can_be(live, in_a_queue("serving"))["spec"]["template"]["spec"]
    assert "initContainers" not in fewer


def test_out_of_queues_nodes_and_requests_may_change() -> None:
    wanted = in_a_queue(None, asked="now", cpu="9", affinity=ELSEWHERE)
    assert made_anew(wanted, in_a_queue(None)) == ()
    assert made_anew(wanted, in_a_queue("serving"))[0] == "queue"


def model(cache: dict[str, str] | None) -> dict[str, Any]:
    return {"id": MODEL, "weights": {"cache": cache} if cache else {}}


def serving(nodes: int, storage: dict[str, str] | None, **spec: Any) -> Operator:
    spec = {**ONE_NODE, "replicas": 2, "model": model(storage), **spec}
    return _served(nodes, dumps(spec, sort_keys=True)).fork()


@cache
def _served(nodes: int, spec: str) -> Operator:
    cluster = SmallCluster()
    cluster.add_nodes(nodes)
    operator = Operator(cluster, loads(spec))
    operator.run(LOAD_SECONDS + 60)
    assert cluster.serving().keys() == {"llama-0", "llama-1"}
    return operator


def sizes(operator: Operator) -> dict[str, list[str]]:
    """Return the sizes of the claims of each StatefulSet, by name."""
    return {
        name: [
            claim["spec"]["resources"]["requests"]["storage"]
            for claim in live["spec"].get("volumeClaimTemplates", ())
        ]
        for name, live in operator.cluster.sets().items()
    }


@pytest.mark.parametrize(
    ("before", "after", "claims"),
    [
        (SMALL, LARGE, ["20Gi"]),
        (None, SMALL, ["10Gi"]),
        (SMALL, None, []),
        (SMALL, {"claimName": "shared"}, []),
    ],
    ids=["size", "set", "removed", "a shared one"],
)
@pytest.mark.parametrize(
    ("surge", "nodes", "least"), [(0, 2, 1), (1, 3, 2)], ids=["after", "beside"]
)
def test_other_claims_make_each_group_anew_in_its_turn(
    *,
    before: dict[str, str] | None,
    after: dict[str, str] | None,
    claims: list[str],
    surge: int,
    nodes: int,
    least: int,
) -> None:
    operator = serving(nodes, before, rollout={"maxSurge": surge})
    operator.edit(model=model(after))

    for _ in operator.moments(1800):
        assert len(operator.cluster.serving()) >= least
        if (
            sizes(operator) == {"llama-0-g1": claims, "llama-1-g1": claims}
            and len(operator.cluster.serving()) == 2
        ):
            break
    else:
        pytest.fail(f"still {sizes(operator)}")
    operator.run(30)  # what nothing mounts any more goes last
    written = len(operator.written)
    operator.run(600)
    assert [
        write for write in operator.written[written:] if isinstance(write, Create | Delete)
    ] == []
    assert sizes(operator) == {"llama-0-g1": claims, "llama-1-g1": claims}


def test_a_change_that_is_taken_back_before_the_turn_of_a_group_leaves_it_as_it_is() -> None:
    operator = serving(2, SMALL)
    before = operator.cluster.serving()
    operator.edit(model=model(LARGE))
    operator.run(0)
    operator.edit(model=model(SMALL))
    operator.run(4 * LOAD_SECONDS)
    assert sizes(operator).keys() == {"llama-0", "llama-1"}
    assert operator.cluster.serving().keys() == before.keys()
    assert len(set(operator.cluster.serving().values()).intersection(before.values())) == 1


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("ConfigMap", lambda item: item["data"].update(dict.fromkeys(item["data"], "exit 1"))),
        ("Service", lambda item: item["spec"].update(clusterIP="10.0.0.9")),
    ],
)
def test_an_object_beside_the_pods_that_cannot_be_set_right_is_made_again(
    kind: str, change: Any
) -> None:
    operator = serving(4, None, **TWO_NODES)
    before = operator.cluster.serving()
    found = {
        name: item
        for (of, name), item in operator.cluster.objects.items()
        if of == kind and name not in ("llama", "llama-plan")
    }
    name, item = next(iter(found.items()))
    right = copy.deepcopy(item)
    change(item)
    operator.cluster.version += 1
    operator.written.clear()

    operator.run(30)

    own = [
        write
        for write in operator.written
        if getattr(write, "name", "") == name or _names(write, name)
    ]
    assert [type(write) for write in own] == [Delete, Create]
    now = operator.cluster.objects[kind, name]
    assert {field: value for field, value in now.items() if field != "metadata"} == {
        field: value for field, value in right.items() if field != "metadata"
    }
    assert operator.cluster.serving() == before


def _names(write: Any, name: str) -> bool:
    return isinstance(write, Create | Apply) and write.content["metadata"]["name"] == name
