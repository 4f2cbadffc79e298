"""Quotas and ranges: pods count as the API server's admission counts them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from shardwright.errors import Problem
from shardwright.layouts.layout import GpuQuota
from shardwright.reconcile.quotas import (
    Allowance,
    Need,
    ceilings,
    left_of,
    need_of,
    quota_problem,
    range_problem,
    read_quota,
    read_ranges,
)
from shardwright.rendering.deployment import Ceiling
from shardwright.rendering.place import pod_template
from shardwright.units import GIB
from tests.support.builders_deployment import a_deployment, a_small_plan

GPU = "requests.nvidia.com/gpu"
SPEC: dict[str, Any] = {
    "containers": [
        {
            "name": "engine",
            "resources": {
                "requests": {"cpu": "8", "memory": "64Gi"},
                "limits": {"nvidia.com/gpu": "8"},
            },
        }
    ],
    "initContainers": [
        {"name": "weights", "resources": {"requests": {"cpu": "10", "memory": "1Gi"}}}
    ],
}


def allowance(hard: dict[str, str], used: dict[str, str] | None = None, **spec: Any) -> Allowance:
    content = {
        "metadata": {"name": "team"},
        "spec": {"hard": hard, **spec},
        "status": {"used": used or {}},
    }
    return Allowance(quotas=(read_quota(content),))


def limits(*items: dict[str, Any]) -> Allowance:
    return Allowance(
        ranges=read_ranges({"metadata": {"name": "team"}, "spec": {"limits": list(items)}})
    )


def need(
    spec: dict[str, Any] = SPEC,
    given: Allowance = Allowance(),  # noqa: B008  # a frozen value
    **more: Any,
) -> Need:
    return need_of({**spec, **more}, given)


def said(problem: Problem | None) -> str:
    return problem.sentence() if problem else ""


def test_a_pod_counts_for_the_sum_of_its_containers_or_for_the_largest_that_runs_before_them() -> (
    None
):
    assert need().amounts == {
        "pods": Decimal(1),
        "count/pods": Decimal(1),
        "cpu": Decimal(10),
        "requests.cpu": Decimal(10),
        "memory": Decimal(64 * 2**30),
        "requests.memory": Decimal(64 * 2**30),
        GPU: Decimal(8),
        "limits.nvidia.com/gpu": Decimal(8),
    }


@pytest.mark.parametrize(
    ("hard", "pods", "fits"),
    [
        ({GPU: "16"}, 2, True),
        ({GPU: "16"}, 3, False),
        ({GPU: "0"}, 1, False),
        ({"pods": "2"}, 3, False),
        ({"count/pods": "3"}, 3, True),
        ({"requests.memory": "128Gi"}, 2, True),
        ({"memory": "100Gi"}, 2, False),
        ({"requests.cpu": "19500m"}, 2, False),
        ({"services": "0", "requests.storage": "0"}, 99, True),
        ({"limits.memory": "1Ti"}, 1, False),
    ],
)
def test_all_pods_together_must_fit_what_a_quota_allows(
    hard: dict[str, str], pods: int, *, fits: bool
) -> None:
    assert (quota_problem(allowance(hard), (need(), pods)) is None) is fits


def test_what_is_used_and_promised_counts_and_what_is_its_own_does_not() -> None:
    given = allowance({GPU: "40"}, {GPU: "24"})
    wanted = (need(), 2)

    assert quota_problem(given, wanted) is None
    assert quota_problem(given, wanted, promised=((need(), 1),)) is not None
    assert quota_problem(given, wanted, promised=((need(), 1),), own=((need(), 1),)) is None


def test_the_sentence_names_the_quota_its_limit_the_gap_and_a_way_out() -> None:
    problem = quota_problem(allowance({GPU: "20"}, {GPU: "8"}), (need(), 2))

    assert said(problem) == (
        "ResourceQuota team allows 20 requests.nvidia.com/gpu, of which 8 are used or promised to "
        "other models, "
        "the plan needs 16, 4 too many; it holds no GPU meanwhile; "
        "have the quota raised, ask for fewer replicas or GPUs, or delete what uses it"
    )


@pytest.mark.parametrize(("hard", "code"), [("16", "QuotaInUse"), ("15", "QuotaExceeded")])
def test_waiting_helps_where_the_quota_would_do_if_nothing_else_used_it(
    hard: str, code: str
) -> None:
    problem = quota_problem(allowance({GPU: hard}, {GPU: "8"}), (need(), 2))

    assert problem is not None
    assert problem.code == code


@pytest.mark.parametrize(
    ("scopes", "more", "counts"),
    [
        ({"scopes": ["NotTerminating"]}, {}, True),
        ({"scopes": ["Terminating"]}, {}, False),
        ({"scopes": ["BestEffort"]}, {}, False),
        ({"scopes": ["NotBestEffort", "NotTerminating"]}, {}, True),
        ({"scopes": ["CrossNamespacePodAffinity"]}, {}, False),
        ({"scopes": ["PriorityClass"]}, {}, False),
        ({"scopes": ["PriorityClass"]}, {"priorityClassName": "chat"}, True),
        ({"classes": ("In", ["chat", "batch"])}, {"priorityClassName": "chat"}, True),
        ({"classes": ("In", ["batch"])}, {"priorityClassName": "chat"}, False),
        ({"classes": ("In", ["batch"])}, {}, False),
        ({"classes": ("NotIn", ["batch"])}, {"priorityClassName": "chat"}, True),
        ({"classes": ("NotIn", ["batch"])}, {}, True),
        ({"classes": ("Exists", [])}, {}, False),
        ({"classes": ("DoesNotExist", [])}, {}, True),
    ],
)
def test_a_quota_with_scopes_is_about_the_pods_that_it_selects(
    scopes: dict[str, Any], more: dict[str, Any], *, counts: bool
) -> None:
    spec = dict(scopes)
    if "classes" in spec:
        operator, values = spec.pop("classes")
        spec["scopeSelector"] = {
            "matchExpressions": [
                {"scopeName": "PriorityClass", "operator": operator, "values": values}
            ]
        }
    given = allowance({"pods": "0"}, **spec)

    assert (quota_problem(given, (need(**more), 1)) is not None) is counts


def test_pods_that_name_no_class_are_of_the_default_class() -> None:
    expression = {"scopeName": "PriorityClass", "operator": "In", "values": ["usual"]}
    given = allowance({"pods": "0"}, scopeSelector={"matchExpressions": [expression]})

    assert quota_problem(given, (need_of(SPEC, given, "usual"), 1)) is not None


def test_a_pod_with_gpus_alone_is_best_effort_to_a_quota() -> None:
    bare = {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}

    assert (need(bare).best_effort, need().best_effort) == (True, False)


def test_what_containers_leave_open_a_limit_range_states_before_quotas_count() -> None:
    ranges = limits(
        {"type": "Container", "default": {"memory": "80Gi"}, "defaultRequest": {"memory": "70Gi"}}
    )
    bare = {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}

    found = need(bare, ranges).amounts
    assert (found["limits.memory"], found["requests.memory"]) == (
        Decimal(80 * 2**30),
        Decimal(70 * 2**30),
    )
    assert quota_problem(allowance({"limits.memory": "160Gi"}), (need(bare, ranges), 2)) is None


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        (
            {"type": "Container", "max": {"nvidia.com/gpu": "4"}},
            "LimitRange team allows each container 4 nvidia.com/gpu",
        ),
        (
            {"type": "Pod", "max": {"nvidia.com/gpu": "4"}},
            "LimitRange team allows each pod 4 nvidia.com/gpu",
        ),
        (
            {"type": "Container", "min": {"memory": "2Gi"}},
            "LimitRange team wants 2147483648 memory of each container",
        ),
        (
            {"type": "Container", "max": {"memory": "2Ti"}},
            "LimitRange team allows each container 2199023255552 memory",
        ),
        (
            {"type": "Container", "maxLimitRequestRatio": {"memory": "2"}},
            (
                "LimitRange team allows each container a limit of memory of 2 times its request, "
                "the "
                "pods of the plan have"
            ),
        ),
        ({"type": "Pod", "maxLimitRequestRatio": {"nvidia.com/gpu": "1"}}, ""),
        ({"type": "Pod", "max": {"nvidia.com/gpu": "8"}}, ""),
        ({"type": "PersistentVolumeClaim", "max": {"storage": "1"}}, ""),
    ],
)
def test_a_limit_range_that_keeps_the_pods_out_is_named(
    limit: dict[str, Any], message: str
) -> None:
    assert said(range_problem(SPEC, limits(limit))).startswith(message)
    assert bool(range_problem(SPEC, limits(limit))) is bool(message)


CONTAINER = {
    "type": "Container",
    "default": {"memory": "8Gi"},
    "max": {"memory": "16Gi", "ephemeral-storage": "20Gi"},
}


def test_the_lowest_limit_that_ranges_give_or_admit_is_the_ceiling_of_a_container() -> None:
    of_pod = {"type": "Pod", "max": {"memory": "12Gi", "cpu": "4"}}
    without = {"type": "Container", "min": {"memory": "1Gi"}, "defaultRequest": {"memory": "2Gi"}}

    assert ceilings(limits(CONTAINER, of_pod, without)) == (
        Ceiling(resource="memory", given_bytes=8 * GIB, most_bytes=12 * GIB),
        Ceiling(resource="ephemeral-storage", most_bytes=20 * GIB),
    )
    assert ceilings(limits(without)) == ceilings(Allowance()) == ()


@pytest.mark.parametrize(
    "item",
    [
        {"type": "Container", "max": {"memory": "20Gi", "ephemeral-storage": "30Gi"}},
        {
            "type": "Container",
            "max": {"memory": "20Gi"},
            "default": {"memory": "20Gi", "ephemeral-storage": "18Gi"},
        },
        {"type": "Pod", "max": {"memory": "20Gi", "ephemeral-storage": "30Gi"}},
        {"type": "Container", "default": {"memory": "1Gi"}},
        {"type": "Container", "maxLimitRequestRatio": {"memory": "1"}},
        {
            "type": "Container",
            "maxLimitRequestRatio": {"memory": "1500m"},
            "default": {"memory": "1Ti"},
        },
        {"type": "Pod", "maxLimitRequestRatio": {"memory": "2"}, "max": {"memory": "20Gi"}},
    ],
)
def test_the_limits_of_a_pod_are_within_what_its_namespace_admits(item: dict[str, Any]) -> None:
    within = a_deployment(ceilings=ceilings(limits(item)))

    assert range_problem(pod_template(a_small_plan(), within, 0)["spec"], limits(item)) is None


def test_a_limit_that_is_too_many_times_its_request_is_named_with_both() -> None:
    pod = pod_template(a_small_plan(), a_deployment(), 0)["spec"]

    problem = said(
        range_problem(
            pod, limits({"type": "Container", "maxLimitRequestRatio": {"memory": "1500m"}})
        )
    )

    assert problem.startswith(
        "LimitRange team allows each container a limit of memory of 1.5 times its request, the "
        "pods of the plan have"
    )


@pytest.mark.parametrize(("name", "least"), [("memory", "8Gi")])
def test_a_namespace_that_admits_less_than_a_pod_requests_is_named(name: str, least: str) -> None:
    item = {"type": "Container", "max": {name: least}, "default": {name: least}}
    within = a_deployment(ceilings=ceilings(limits(item)))

    problem = said(range_problem(pod_template(a_small_plan(), within, 0)["spec"], limits(item)))

    assert "LimitRange team" in problem
    assert name in problem


def test_what_a_quota_leaves_counts_our_own_pods_as_gone_and_those_that_are_promised_as_there() -> (
    None
):
    hard = {GPU: "20", "requests.amd.com/gpu": "8", "requests.memory": "1Gi"}
    given = allowance(hard, {GPU: "16"})
    assert list(left_of(given, "", own=[(need(), 1)], promised=[(need(), 1)])) == [
        GpuQuota(name="ResourceQuota team", resource="amd.com/gpu", gpus=8),
        GpuQuota(name="ResourceQuota team", resource="nvidia.com/gpu", gpus=4),
    ]
    assert [item.gpus for item in left_of(given, "", [], [(need(), 1)])] == [8, 0]
    scoped = allowance(
        {GPU: "8"},
        scopeSelector={
            "matchExpressions": [
                {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
            ]
        },
    )
    assert [item.gpus for item in left_of(scoped, "high", [], [])] == [8]
    assert list(left_of(scoped, "low", [], [])) == []
