"""Each state in which nothing gets on has its cause in the doctor's first line."""

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from shardwright.cli.diagnosis import Result
from shardwright.cli.doctor import LINES, lines_of
from shardwright.cli.doctor_checks import examine
from shardwright.cli.present_states import (
    Answers,
    EvictionBudget,
    FullQuota,
    NodeState,
    PlacedPod,
    PresentState,
    SeenLease,
    Unanswered,
    Webhook,
    needed_of,
    read_budget,
    read_full_quota,
    read_node_state,
    read_unanswered,
)
from shardwright.cli.taking_stock import TakenStock
from shardwright.cluster.resources import Resource
from tests.support.hostile import ODD_TEXTS
from tests.unit.cli.test_doctor import OPERATOR, a_diagnosed_model, a_stock, found, said

M = ("models", "m")
IT = "shardwright-system/shardwright"
LABELS = {"shardwright.io/model": "m"}
POD = PlacedPod(key=("models", "m-0-0"), node="n1", labels=LABELS)
OURS = EvictionBudget(key=M, selector={"matchLabels": LABELS}, allowed=0, ours=True)
THEIRS = replace(OURS, key=("models", "mine"), ours=False)
DEAF = Webhook(
    name="deny.example.com",
    kind="ValidatingWebhookConfiguration",
    configuration="deny",
    service=("policy", "deny"),
)


def present(**changed: Any) -> PresentState:
    return replace(a_stock().present, **changed)


def a_model_on(node: str, *, ready: bool = False, **conditions: Any) -> dict[str, Any]:
    model = a_diagnosed_model("m", ready="True" if ready else "False", **conditions)
    model["status"]["groups"] = [{"name": "m-0", "ready": ready, "nodes": [node]}]
    return model


WAITS = present(
    answers=Answers(waiting=(Unanswered(key=M, generation=13, observed=12),), answered=0)
)
REFUSED = a_diagnosed_model("m", since="", reason="PodsRefused")
UNAVAILABLE = a_diagnosed_model("m", since="", reason="ApiUnavailable")

BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "a definition that is gone": ({"served": False}, "the API server does not serve ShardedModels"),
    "a leader that hangs": (
        {"operators": (replace(OPERATOR, lease=SeenLease(holder="a", unrenewed_seconds=15)),)},
        f"{IT}: a holds the Lease and has not renewed it in 15 s: nothing is written",
    ),
    "a Lease that somebody has forged": (
        {"operators": (replace(OPERATOR, lease=SeenLease(holder="x", unrenewed_seconds=15)),)},
        f"{IT}: x, which is no pod of the operator, holds the Lease and has not renewed it in 15 s",
    ),
    "a Lease that somebody else renews": (
        {"operators": (replace(OPERATOR, lease=SeenLease(holder="x")),)},
        f"{IT}: x, which is no pod of the operator, holds the Lease and renews it: that process",
    ),
    "a worker that is stopped": (
        {"present": WAITS},
        (
            "models/m waits with generation 13 (the one before is 12): the operator has not looked in "
            "10 s; if the Lease is renewed, its worker process or a request of it hangs"
        ),
    ),
    "a webhook that is dead": (
        {"models": (UNAVAILABLE,), "present": present(deaf=(DEAF,))},
        (
            "webhook deny.example.com of ValidatingWebhookConfiguration deny must agree to what is "
            "written, and no pod behind Service policy/deny is ready"
        ),
    ),
    "an API server that fails": ({"models": (UNAVAILABLE,)}, "models/m: ApiUnavailable: why"),
    "a node that is gone": (
        {"models": (a_model_on("n2", ready=True),)},
        "n2 does not exist; planned on by models/m-0",
    ),
    "a node that is not ready": (
        {"models": (a_model_on("n1"),), "node_states": {"n1": NodeState(ready=False)}},
        "n1 is not ready; planned on by models/m-0",
    ),
    "a cordoned node whose group is down": (
        {"models": (a_model_on("n1"),), "node_states": {"n1": NodeState(cordoned=True)}},
        "n1 is cordoned; planned on by models/m-0",
    ),
    "a quota at its limit": (
        {
            "models": (REFUSED,),
            "present": present(quotas=(FullQuota(key=("models", "q"), spent={"pods": "4"}),)),
        },
        (
            "ResourceQuota models/q is used up (pods 4): nothing more of that is let in; waiting "
            "there: m"
        ),
    ),
    "a budget of the user that blocks a drain": (
        {
            "node_states": {"n1": NodeState(cordoned=True)},
            "present": present(pods=(POD,), budgets=(THEIRS,)),
        },
        (
            "PodDisruptionBudget models/mine (not the operator's) allows no eviction: the drain of n1 "
            "waits for m-0-0"
        ),
    ),
    "a budget of ours that blocks a drain": (
        {
            "node_states": {"n1": NodeState(cordoned=True)},
            "present": present(pods=(POD,), budgets=(OURS,)),
        },
        (
            "PodDisruptionBudget models/m (the operator's, until all groups are ready) allows no "
            "eviction: the drain of n1 waits for m-0-0"
        ),
    ),
    "two budgets over one pod": (
        {"present": present(pods=(POD,), budgets=(OURS, replace(THEIRS, allowed=1)))},
        "pods m-0-0 of models are under the PodDisruptionBudgets m, mine: Kubernetes evicts no pod",
    ),
}


def shown(stock: TakenStock) -> list[str]:
    """Return what a wide terminal shows."""
    return [one.plain() for one in lines_of(examine(stock), 400)]


@pytest.mark.parametrize("state", BROKEN)
def test_the_first_line_is_the_cause(state: str) -> None:
    changed, cause = BROKEN[state]

    assert shown(a_stock(**changed))[0].startswith(f"WRONG {cause}")


@pytest.mark.parametrize("both", list(combinations(BROKEN, 2)), ids=" and ".join)
def test_of_two_causes_at_once_each_is_said(both: tuple[str, str]) -> None:
    (one, first), (other, second) = (BROKEN[state] for state in both)
    if not_together(one, other):
        return
    merged = {**one, **other}
    if "present" in one.keys() & other.keys():
        merged["present"] = both_present(one["present"], other["present"])
    if "models" in one.keys() & other.keys() and one["models"] != other["models"]:
        merged["models"] = (*one["models"], *other["models"])

    lines = shown(a_stock(**merged))

    assert all(
        any(line.startswith(f"WRONG {cause}"[:60]) for line in lines) for cause in (first, second)
    )
    assert len(lines) <= LINES


def not_together(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether both are about the one Lease, the one node or the one pod."""
    shared = one.keys() & other.keys()
    pods = [bool(state.get("present", PresentState()).pods) for state in (one, other)]
    return bool(shared & {"operators", "node_states"}) or all(pods)


def both_present(one: PresentState, other: PresentState) -> PresentState:
    fine = a_stock().present
    changed = (
        (name, getattr(other, name)) for name in ("answers", "pods", "budgets", "quotas", "deaf")
    )
    return replace(one, **{name: part for name, part in changed if part != getattr(fine, name)})


def test_whatever_is_found_a_screen_is_enough_and_the_rest_is_counted() -> None:
    models = tuple(
        a_diagnosed_model(f"m{index}", reason="InvalidSpec", Stalled="True") for index in range(30)
    )
    for width in (60, 80, 200):
        lines = [one.plain() for one in lines_of(examine(a_stock(models=models)), width)]

        assert len(lines) <= LINES
        assert lines[0] == "WRONG models/m0 waits for you: InvalidSpec: why"
        assert any("more findings: -o json has all" in line for line in lines)


def test_where_nothing_is_wrong_one_line_says_so() -> None:
    (only,) = (one.plain() for one in lines_of(examine(a_stock()), 1000))

    assert only.startswith("ok    version of the API server, ShardedModels are served, operator,")


def test_an_operator_that_answers_others_is_busy_and_not_stopped() -> None:
    answers = replace(WAITS.answers or Answers(), answered=7)
    busy = found(a_stock(present=present(answers=answers)), "Answers")

    assert busy.result is Result.NOTED
    assert busy.findings[0].message.endswith("; it has looked at 7 others meanwhile")


def test_what_is_in_nobodys_way_is_noted() -> None:
    quota = FullQuota(key=("models", "q"), spent={"pods": "4"})
    serves = a_model_on("n1", ready=True)
    cordoned = {"n1": NodeState(cordoned=True)}
    stocks = {
        "Writes": a_stock(present=present(deaf=(DEAF,))),
        "PlannedNodes": a_stock(models=(serves,), node_states=cordoned),
        "Quotas": a_stock(
            models=(a_diagnosed_model("m", reason="Progressing"),), present=present(quotas=(quota,))
        ),
        "Budgets": a_stock(present=present(pods=(POD,), budgets=(THEIRS,))),
    }

    assert {check: found(stock, check).result for check, stock in stocks.items()} == dict.fromkeys(
        stocks, Result.NOTED
    )


def test_what_stops_nobody_is_not_said() -> None:
    quota = FullQuota(key=("models", "q"), spent={"pods": "4"})
    paused = a_diagnosed_model("m", reason="Paused")
    ends, cordoned = replace(POD, ends=True), {"n1": NodeState(cordoned=True)}
    stocks = (
        a_stock(present=present(quotas=(quota,))),
        a_stock(models=(paused,), present=present(quotas=(quota,))),
        a_stock(present=present(pods=(POD,), budgets=(OURS,))),
        a_stock(node_states=cordoned, present=present(pods=(ends,), budgets=(THEIRS,))),
        a_stock(
            node_states=cordoned,
            present=present(pods=(POD,), budgets=(replace(THEIRS, key=("elsewhere", "b")),)),
        ),
    )

    assert [shown(stock)[0][:2] for stock in stocks] == ["ok"] * len(stocks)


@pytest.mark.parametrize(
    ("expression", "selects"),
    [
        ({"key": "a", "operator": "In", "values": ["1"]}, True),
        ({"key": "a", "operator": "NotIn", "values": ["1"]}, False),
        ({"key": "b", "operator": "NotIn", "values": ["1"]}, True),
        ({"key": "a", "operator": "Exists"}, True),
        ({"key": "b", "operator": "DoesNotExist"}, True),
        ({"key": "b", "operator": "Exists"}, False),
    ],
)
def test_a_budget_covers_what_its_selector_selects(
    expression: dict[str, Any], *, selects: bool
) -> None:
    budget = replace(THEIRS, selector={"matchExpressions": [expression]})

    assert budget.covers(replace(POD, labels={"a": "1"})) is selects


@pytest.mark.parametrize(("spec", "covers"), [({"selector": {}}, True), ({}, False)])
def test_a_budget_with_an_empty_selector_covers_all_pods_and_one_without_covers_none(
    spec: dict[str, Any], *, covers: bool
) -> None:
    budget = read_budget({"metadata": {"namespace": "models", "name": "b"}, "spec": spec})

    assert budget.covers(POD) is covers


def test_a_quota_is_spent_where_nothing_is_left_of_a_resource() -> None:
    content = {
        "metadata": {"namespace": "models", "name": "q"},
        "status": {
            "hard": {"pods": "4", "requests.cpu": "2", "requests.memory": "1Gi", "services": "5"},
            "used": {"pods": "4", "requests.cpu": "2000m", "requests.memory": "1023Mi"},
        },
    }

    assert read_full_quota(content).spent == {"pods": "4", "requests.cpu": "2"}


@pytest.mark.parametrize(
    ("changed", "needed"),
    [
        ({}, True),
        ({"failurePolicy": "Ignore"}, False),
        ({"clientConfig": {"url": "https://x"}}, False),
        ({"rules": [{"resources": ["certificates"]}]}, False),
        ({"rules": [{"resources": ["certificates"]}, {"resources": ["*"]}]}, True),
    ],
)
def test_a_webhook_is_needed_that_is_asked_about_our_objects_and_fails_closed(
    changed: dict[str, Any], *, needed: bool
) -> None:
    hook = {
        "name": "deny.example.com",
        "failurePolicy": "Fail",
        "clientConfig": {"service": {"namespace": "policy", "name": "deny"}},
        "rules": [{"resources": ["pods", "deployments"]}],
    }
    kind = Resource(prefix="", plural="", kind=DEAF.kind)
    configuration = {"metadata": {"name": "deny"}, "webhooks": [hook | changed]}

    assert needed_of(kind, configuration) == ([DEAF] if needed else [])


@pytest.mark.parametrize(
    ("generation", "observed", "more", "waits"),
    [
        (13, 12, {}, True),
        (12, 12, {}, False),
        (1, None, {}, True),
        (2, 1, {"deletionTimestamp": "2026-11-24T12:00:00Z"}, False),
    ],
)
def test_an_edit_waits_until_its_generation_is_observed(
    generation: int, observed: int | None, more: dict[str, str], *, waits: bool
) -> None:
    metadata = {"namespace": "models", "name": "m", "generation": generation, **more}
    read = read_unanswered({"metadata": metadata, "status": {"observedGeneration": observed}})

    assert read == (
        Unanswered(key=M, generation=generation, observed=observed or 0) if waits else None
    )


@pytest.mark.parametrize("odd", [None, 7, "x", [], [1], {}, {"a": []}, *ODD_TEXTS])
def test_whatever_an_object_holds_is_read(odd: Any) -> None:
    kind = Resource(prefix="", plural="", kind="X")
    inner = {"conditions": odd, "hard": odd, "used": odd, "disruptionsAllowed": odd}
    inner |= {"selector": odd, "unschedulable": odd, "generation": odd, "groups": odd}
    inner |= {"nodes": odd, "name": odd, "labels": odd}
    for content in (
        {"metadata": odd, "spec": odd, "status": odd, "webhooks": odd},
        {"metadata": inner, "spec": inner, "status": inner, "webhooks": [inner]},
        {"status": {"groups": [inner]}, "webhooks": [{"clientConfig": {"service": inner}}]},
    ):
        read_unanswered(content)
        read_node_state(content)
        read_full_quota(content)
        needed_of(kind, content)
        budget = read_budget(content)
        examine(a_stock(models=(content,), present=present(pods=(POD,), budgets=(budget,))))


def test_a_command_shows_the_log_of_who_hangs_and_the_lease_of_a_stranger() -> None:
    hangs, stranger = (
        replace(OPERATOR, lease=SeenLease(holder=name, unrenewed_seconds=15)) for name in "ax"
    )

    assert [said(a_stock(operators=(one,)), "Operator")[0][1] for one in (hangs, stranger)] == [
        "kubectl -n shardwright-system logs --tail=50 a",
        "kubectl -n shardwright-system get lease -o yaml shardwright",
    ]
