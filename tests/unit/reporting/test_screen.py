"""The first screen: what stands on it, and that it is never longer than a terminal."""

from dataclasses import replace
from typing import Any

import pytest

from shardwright.costs.host import Storage
from shardwright.errors import Problem
from shardwright.hardware.inventory import Inventory, KnownPods, Pool
from shardwright.layouts.layout import Layout
from shardwright.planning.planner import make_plan
from shardwright.planning.report import Enough, Loss, LossKind, Plan, Report
from shardwright.planning.request import Objective, Request, Statistic
from shardwright.reporting.lines import Role, command_lines
from shardwright.reporting.screen import (
    POINTS,
    Due,
    Screen,
    points,
    ruled_out,
    screen_of,
    where,
    why_not,
)
from shardwright.reporting.screen_text import MOST_LINES, screen_lines
from tests.support.builders_plan import a_pool, an_inventory
from tests.support.builders_reporting import (
    a_refusal,
    a_report,
    a_reported_performance,
    a_reported_plan,
    a_reported_request,
    an_alternative,
    an_exclusion,
)
from tests.support.questions import a_question

GIB = 1024**3
SEEDS = range(7000, 7030)

GATED = "gated: accept its terms on the hub, and name a token in weights.secretRef:"


def _at_a_rate(rate: float) -> Request:
    request = a_reported_request()
    return replace(request, workload=replace(request.workload, requests_per_second=rate))


def _facts(screen: Screen) -> dict[str, str]:
    return {fact.label: fact.value for fact in screen.facts}


def _text(screen: Screen, width: int = 80) -> str:
    return "\n".join(one.plain() for one in screen_lines(screen, title="llama", width=width))


def _pool_of(plan: Plan, **changes: Any) -> Pool:
    return replace(a_pool(nodes=2), name=plan.pool, **changes)


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_screen_holds_any_answer_with_all_that_is_to_be_done(seed: int, width: int) -> None:
    question = a_question(seed)
    asked = question.request
    request = replace(
        asked,
        gated=("acme/llama",),
        storage=Storage.HUB,
        file_bytes=756 * GIB,
        owner=("models-of-a-team", "llama"),
        objective=replace(asked.objective, ttft_seconds=1e6, statistic=Statistic.P95),
    )
    report = make_plan(question.model, question.inventory, request, question.traits)
    inventory = replace(question.inventory, known_pods=KnownPods.NONE)
    screen = screen_of(report, request=request, inventory=inventory, named=True)
    command = "shardwright plan acme/llama --gpus 16xH100 --rps 10 --ttft 2s -o manifest"
    closing = command_lines(command, width=width, indent=6)

    lines = screen_lines(screen, title="llama-3-1-405b", width=width, closing=closing)

    assert len(lines) <= MOST_LINES
    assert lines[-len(closing) :] == closing
    said = [one.plain() for one in lines if not any(s.role is Role.COMMAND for s in one.spans)]
    assert max(map(len, said)) <= width
    assert all(point.said.split()[0] in "\n".join(said) for point in screen.points)
    rows = sum(rival.layout in one for rival in screen.rivals[:3] for one in said[1:] if one)
    assert rows >= min(len(screen.rivals), 2)


def test_what_is_too_long_for_a_screen_leaves_runners_up_out_and_nothing_to_be_done() -> None:
    plan = a_reported_plan(undeployable=Problem(code="NotYetDeployable", what="words " * 120))
    others = tuple(an_alternative(Layout(tensor=16, replicas=n), "") for n in range(1, 6))
    report = a_report(plan, alternatives=others)

    text = _text(screen_of(report, request=replace(a_reported_request(), gated=("a/b",))))

    assert text.count("\n") < MOST_LINES
    assert "create secret generic" in text
    assert "5 x TP16" not in text


def test_what_can_be_served_stands_beside_the_rate_asked_with_band_and_headroom() -> None:
    speed = a_reported_performance(output=512 * 10, low=512 * 8, high=512 * 12)
    plan = a_reported_plan(performance=speed, capacity=12.5)

    facts = _facts(screen_of(a_report(plan), request=_at_a_rate(10)))

    assert facts["Load"].startswith("10 requests a second")
    assert facts["Can serve"] == (
        "12.5 requests/s, 6,400 tok/s (5,100\N{EN DASH}7,700, modelled); headroom 20%"
    )


def test_with_requests_in_flight_the_output_is_what_can_be_served() -> None:
    facts = _facts(screen_of(a_report(), request=a_reported_request()))

    assert facts["Can serve"] == ("2,310 tok/s (1,500\N{EN DASH}3,100, modelled), 4.52 requests/s")


def test_a_runner_up_shows_the_most_that_it_serves_and_not_the_load_again() -> None:
    other = replace(an_alternative(Layout(tensor=4, replicas=4), ""), capacity=28.9)
    late = replace(other, losses=(Loss(kind=LossKind.FALLS_BEHIND, amount=8.0),), capacity=8.0)

    rivals = screen_of(a_report(alternatives=(other, late))).rivals

    assert [(one.layout, one.gpus, one.serves, one.first_token) for one in rivals] == [
        ("4 x TP4", "16", "28.9/s", "310 ms"),
        ("4 x TP4", "16", "8.00/s", "-"),
    ]
    assert [one.sure for one in rivals] == ["\N{PLUS-MINUS SIGN}34%"] * 2


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        ([Loss(kind=LossKind.TIGHT), Loss(kind=LossKind.TPOT, amount=3.0)], "tight, may not start"),
        ([Loss(kind=LossKind.TPOT, amount=1.5), Loss(kind=LossKind.TTFT, amount=1.2)],
         "50% more per token"),
        ([Loss(kind=LossKind.THROUGHPUT_PER_GPU, amount=0.5),
          Loss(kind=LossKind.TPOT, amount=1.5)], "50% less per GPU"),
        ([Loss(kind=LossKind.TTFT, amount=2.0)], "100% later first token"),
        ([Loss(kind=LossKind.TPOT, amount=0.6)], "no clear gain"),
    ],
)  # fmt: skip
def test_the_gravest_loss_is_said(losses: list[Loss], said: str) -> None:
    assert why_not(losses) == said


@pytest.mark.parametrize("kind", [kind for kind in LossKind if kind != LossKind.PART_OF_TPOT])
def test_every_loss_has_words_that_fit_a_column(kind: LossKind) -> None:
    amount = 0.01 if kind in {LossKind.THROUGHPUT_PER_GPU, LossKind.THROUGHPUT_FOR_PRICE} else 9.99

    said = why_not([Loss(kind=kind, amount=amount)])

    assert said != "no clear gain"
    assert len(said) <= 30


def test_ruled_out_is_one_line_with_the_nearest_miss() -> None:
    memory = an_exclusion("WeightsExceedMemory", 15, gap="23.6 GiB short")
    excluded = (an_exclusion("HeadsNotDivisible", 12), memory, an_exclusion("Cordoned", 3))

    report = a_report(excluded=excluded, considered=43)

    assert ruled_out(report) == (
        "ruled out: 27 of 43 layouts (nearest TP8, 23.6 GiB short), 3 nodes"
    )
    assert ruled_out(a_report(excluded=())) == ""


def test_where_nothing_fits_each_reason_has_its_nearest_miss() -> None:
    memory = an_exclusion("WeightsExceedMemory", 15, gap="23.6 GiB short")
    excluded = (
        memory,
        an_exclusion("HeadsNotDivisible", 2),
        an_exclusion("KvHeadsNotDivisible", 1),
    )
    report = a_report(a_refusal(), alternatives=(), excluded=excluded, considered=18)

    text = _text(screen_of(report, request=a_reported_request()))

    assert "\n  15       WeightsExceedMemory      TP8, 23.6 GiB short\n" in text
    assert "\n  3        do not divide the model  -\n" in text
    assert text.startswith("llama: nothing fits. ")


def _points(request: Request | None = None, *, named: bool = False, **changes: Any) -> list[str]:
    plan = a_reported_plan(**changes)
    link = replace(a_pool().network, name="12.5 Gb/s Ethernet", basis="assumed")
    inventory = an_inventory(_pool_of(plan, network=link))
    return [one.said for one in points(plan, request, inventory, named=named)]


def test_an_assumed_network_is_to_be_stated_by_flag_or_label_where_the_plan_crosses_it() -> None:
    over = "12.5 Gb/s Ethernet"
    said = "12.5 Gb/s Ethernet per GPU is assumed: state yours, {}"

    assert _points(pipeline_link=over, named=True) == [said.format("--network")]
    assert _points(pipeline_link=over) == [
        said.format("node label shardwright.io/network-gbps-per-gpu")
    ]
    assert _points(pipeline_link=over, nodes_per_replica=1) == []
    assert _points(pipeline_link="NVLink4 NVSwitch") == []


def test_what_would_carry_a_rate_is_said_with_the_gpus_that_are_free() -> None:
    enough = Enough(layout=Layout(tensor=4, replicas=10), pool="h100", free=16)
    speed = a_reported_performance(output=512 * 10)
    late: dict[str, Any] = {"carries_load": False, "capacity": 8.0, "enough": enough}

    assert _points(_at_a_rate(10), performance=speed, **late) == [
        "above 80% of what is served at most: 10 x TP4 would do (40 GPUs, 16 free)"
    ]
    assert _points(_at_a_rate(20), performance=speed, **late) == [
        "more arrives than is served at most: 10 x TP4 would do (40 GPUs, 16 free)"
    ]


def test_the_most_important_comes_first_and_three_are_shown() -> None:
    request = replace(
        a_reported_request(),
        gated=("acme/llama",),
        storage=Storage.HUB,
        file_bytes=756 * GIB,
        cache_bytes=10 * GIB,
        owner=("models", "llama"),
    )
    plan = a_reported_plan(
        carries_load=False,
        tight=True,
        undeployable=Problem(code="NotYetDeployable", what="not yet"),
    )
    inventory = Inventory(pools=(), excluded=(), known_pods=KnownPods.NONE)

    found = points(plan, request, inventory, named=False)
    screen = screen_of(a_report(plan), request=request, inventory=inventory)

    assert [one.due for one in found] == [
        Due.NOT_DEPLOYABLE,
        Due.GATED,
        Due.CACHE_TOO_SMALL,
        Due.NOT_CARRIED,
        Due.TIGHT,
        Due.PODS_UNKNOWN,
        Due.DOWNLOADS,
    ]
    assert list(Due) == sorted(Due, key=list(Due).index)
    assert screen.points == found[:POINTS]
    assert (found[1].said, found[1].command) == (
        GATED,
        "kubectl -n models create secret generic hub-token --from-literal=token=hf_...",
    )


@pytest.mark.parametrize(
    ("groups", "each", "said"),
    [
        ((("a",),), 1, "1 node: a"),
        ((("a", "b"),), 2, "2 nodes: a, b"),
        ((("a",),) * 8, 1, "8 on 1 node: a"),
        ((("a",),) * 8 + (("b",),) * 2, 1, "10 on 2 nodes: 8 on a, 2 on b"),
        (tuple((f"n{i:02}",) for i in range(24)), 1, "24 on 24 nodes, 1 each: n00, n01 and 22 more nodes"),
        ((("a", "b"), ("c", "d")), 2, "2 on 4 nodes, each over 2: a, b and 2 more nodes"),
    ],
)  # fmt: skip
def test_replicas_are_counted_by_node(
    groups: tuple[tuple[str, ...], ...], each: int, said: str
) -> None:
    assert where(a_reported_plan(groups=groups, nodes_per_replica=each), None) == said


def test_the_default_objective_is_not_said_and_another_is() -> None:
    default, limited = (
        _facts(screen_of(a_report(), request=a_reported_request(objective=objective)))
        for objective in (None, Objective(ttft_seconds=2))
    )

    assert "Objective" not in default
    assert limited["Objective"] == "Balanced, first token within 2.0 s"


def test_on_a_narrow_terminal_columns_go_and_rows_stay_whole() -> None:
    others = tuple(
        replace(
            an_alternative(Layout(tensor=4, pipeline=4, replicas=n), ""), million_tokens_price=1
        )
        for n in (10, 11, 12)
    )
    report: Report = a_report(alternatives=others)

    wide, narrow = (_text(screen_of(report), width) for width in (120, 72))

    assert "FIRST TOKEN  PER TOKEN  COST  WHY NOT" in wide
    assert "FIRST TOKEN" not in narrow
    assert narrow.count("x TP4·PP4") == wide.count("x TP4·PP4") == 3
