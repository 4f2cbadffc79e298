"""Where time goes, side by side, and how sure it is."""

from dataclasses import replace

import pytest

from shardwright.costs.estimates import TimeShare
from shardwright.costs.host import LoadingTime
from shardwright.layouts.layout import Layout
from shardwright.planning.phrases import WORDS, copies
from shardwright.planning.report import Plan, Report
from shardwright.planning.request import Objective, Statistic
from shardwright.reporting.drawings import TimeRow, time_split
from shardwright.reporting.explanation import explain
from shardwright.units import GIB
from tests.support.builders_reporting import (
    a_report,
    a_reported_performance,
    a_reported_plan,
    a_reported_request,
    a_reported_stage,
    an_alternative,
)
from tests.support.explained import to_text


def _shares(**milliseconds: float) -> tuple[TimeShare, ...]:
    return tuple(TimeShare(name=name, seconds=value / 1000) for name, value in milliseconds.items())


def _compared() -> tuple[Plan, Report]:
    plan = a_reported_plan(
        performance=replace(
            a_reported_performance(),
            decode_shares=_shares(Weights=20, TensorCommunication=5, Bubble=2),
        )
    )
    flat = an_alternative(Layout(tensor=16), "more communication")
    flat = replace(
        flat,
        performance=replace(
            flat.performance, decode_shares=_shares(Weights=20, TensorCommunication=30, Queue=1)
        ),
    )
    return plan, a_report(plan, alternatives=(flat,))


def test_parts_are_compared_by_layout_the_largest_first() -> None:
    split = time_split(*_compared())

    assert split.layouts == ("TP8·PP2", "TP16")
    assert split.rows == (
        TimeRow(part="reading weights", seconds=(0.02, 0.02)),
        TimeRow(part="tensor communication", seconds=(0.005, 0.03)),
        TimeRow(part="waiting for other stages", seconds=(0.002, 0.0)),
        TimeRow(part="queueing", seconds=(0.0, 0.001)),
    )
    assert split.token.seconds == (0.0273, 0.0273)


def test_every_part_that_the_cost_model_names_has_words() -> None:
    assert {
        "Weights",
        "KvCache",
        "Compute",
        "TensorCommunication",
        "ExpertCommunication",
        "ContextCommunication",
        "PipelineCommunication",
        "Bubble",
        "Prefill",
        "Queue",
        "Overhead",
    } <= WORDS.keys()


def test_an_explanation_compares_times_and_says_how_sure_it_is() -> None:
    _, report = _compared()
    explanation = explain(report, request=a_reported_request())

    full = to_text(explanation, title="m", width=110)

    assert "  tensor communication      5.0 ms  30 ms\n" in full
    assert "How sure" in full


def test_a_time_is_the_same_words_wherever_it_stands() -> None:
    plan, report = _compared()
    slow = replace(plan.performance, ttft_seconds=1.8382)
    report = replace(report, outcome=replace(plan, performance=slow))

    text = to_text(explain(report), title="m", width=110)

    assert "first token after 1.8 s, then 27 ms per token\n" in text
    assert "\n  first token               1.8 s " in text
    assert "\n  a token                   27 ms " in text


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("others", [0, 1, 4, 8])
def test_the_times_of_every_layout_are_shown_however_narrow_the_text_is(
    width: int, others: int
) -> None:
    plan, _ = _compared()
    layouts = [Layout(tensor=2, attention_data=8, expert=16 + n) for n in range(others)]
    runners_up = tuple(
        replace(
            an_alternative(layout, "slower"),
            performance=replace(plan.performance, decode_shares=_shares(Weights=31.0 + index)),
        )
        for index, layout in enumerate(layouts)
    )
    report = a_report(plan, alternatives=runners_up)

    text = to_text(explain(report), title="m", width=width)

    times = text.split("Where the time of a token goes\n")[1].split("\n\n")[0]
    assert [f"{31 + index} ms" in times for index in range(others)] == [True] * others
    assert [copies(layout) in times for layout in layouts] == [True] * others
    assert max(map(len, times.splitlines())) <= width


def test_layouts_that_have_no_room_beside_the_others_stand_below_them() -> None:
    _, report = _compared()
    report = replace(report, alternatives=report.alternatives * 5)

    text = to_text(explain(report), title="m", width=60)

    times = text.split("Where the time of a token goes\n")[1].split("\n\n")[0]
    assert times.splitlines()[5:13] == [
        "                            plan    A       B       C",
        "  reading weights           20 ms   20 ms   20 ms   20 ms",
        "  tensor communication      5.0 ms  30 ms   30 ms   30 ms",
        "  waiting for other stages  2.0 ms  -       -       -",
        "  queueing                  -       1.0 ms  1.0 ms  1.0 ms",
        "  a token                   27 ms   27 ms   27 ms   27 ms",
        "  first token               310 ms  310 ms  310 ms  310 ms",
        "                            D       E",
    ]


def test_every_figure_says_its_band_and_basis() -> None:
    load = LoadingTime(seconds=800, low=200, high=3600, basis="assumed", source="")
    plan = a_reported_plan(
        stages=(replace(a_reported_stage(0, 0, 125), band_bytes=2 * GIB),), load=load
    )
    request = a_reported_request(objective=Objective(ttft_seconds=1, statistic=Statistic.P95))

    assert explain(a_report(plan), request=request).sure == (
        (
            "Speed: 1,500 to 3,100 tok/s is the 80% band (-35% to +34%), modelled: hardly any "
            "public measurement is like it. The time per output token is about as uncertain, the "
            "time to first token about three times. All are means."
        ),
        "Memory: weights are counted exactly; what is left for K/V may be off by 2.0 GiB per GPU.",
        "Start: reading weights takes 3.3 to 60 min; the bandwidth of the storage is assumed.",
        (
            "Limits: P95 is derived from the predicted means by an assumption about waiting "
            "times; it "
            "is not predicted."
        ),
    )


def test_a_layout_on_other_gpus_is_named_with_its_pool() -> None:
    plan, report = _compared()
    elsewhere = replace(an_alternative(plan.layout, "slower"), pool="l40s-48gb-8x")

    split = time_split(plan, replace(report, alternatives=(elsewhere,)))

    assert split.layouts == ("TP8·PP2", "TP8·PP2 on l40s-48gb-8x")
