"""An explanation as text: what stands where, and that no line is wider than asked for."""

from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.hardware.gpus import GpuPrice, PriceBasis
from shardwright.layouts.layout import Layout
from shardwright.reporting.explanation import MemoryBar, explain
from shardwright.reporting.lines import ASCII, Role, paragraph, table
from shardwright.reporting.text import _bar, to_lines
from shardwright.units import GIB
from tests.support.builders_plan import a_pool, an_inventory
from tests.support.builders_reporting import (
    a_refusal,
    a_report,
    a_reported_plan,
    a_reported_request,
    an_alternative,
)
from tests.support.explained import to_text


@pytest.mark.parametrize("width", [60, 80, 110, 140])
def test_no_line_is_wider_than_asked_for(width: int) -> None:
    explanation = explain(a_report(), request=a_reported_request())

    lines = to_text(explanation, title="llama-405b", width=width).splitlines()

    assert max(map(len, lines)) <= width


def test_a_refusal_has_no_drawing_and_no_memory() -> None:
    text = to_text(explain(a_report(a_refusal(), alternatives=())), title="m", width=110)

    assert "Placement" not in text
    assert "Memory of" not in text
    assert "Ruled out" in text


def test_twenty_nodes_are_drawn_and_the_rest_is_counted() -> None:
    names = tuple(f"n{index:02}" for index in range(32))
    plan = a_reported_plan(
        layout=Layout(tensor=8, pipeline=32), groups=(names,), nodes_per_replica=32
    )

    text = to_text(explain(a_report(plan)), title="m", width=110)

    assert "n19" in text
    assert "n20" not in text
    assert "and 12 more nodes of the same kind" in text


def test_each_replica_is_labelled_once() -> None:
    plan = a_reported_plan(
        layout=Layout(tensor=8, pipeline=2, replicas=2), groups=(("a", "b"), ("c", "d"))
    )

    text = to_text(explain(a_report(plan)), title="m", width=110)

    assert text.split("Placement\n")[1].split("\n\n")[0].splitlines() == [
        "  replica 0   a  [ 0 0 0 0 0 0 0 0 ]  stage 0",
        "              b  [ 1 1 1 1 1 1 1 1 ]  stage 1",
        "  replica 1   c  [ 0 0 0 0 0 0 0 0 ]  stage 0",
        "              d  [ 1 1 1 1 1 1 1 1 ]  stage 1",
        "  which node gets which stage is decided when the pods start",
    ]


def test_attention_ranks_are_drawn_on_their_gpus_with_the_expert_ranks_of_each_node() -> None:
    layout = Layout(tensor=2, attention_data=4, expert=8, replicas=2)
    plan = a_reported_plan(
        layout=layout, groups=(("a", "b"), ("c", "d")), nodes_per_replica=2, gpus_per_node=4
    )

    text = to_text(explain(a_report(plan)), title="m", width=110).translate(ASCII)

    assert text.split("Placement\n")[1].split("\n\n")[0].splitlines() == [
        "  replica 0   a  [ 0 0 1 1 ]  EP 0-3",
        "              b  [ 2 2 3 3 ]  EP 4-7",
        "  replica 1   c  [ 0 0 1 1 ]  EP 0-3",
        "              d  [ 2 2 3 3 ]  EP 4-7",
        "  a number is the attention-data rank (DP) of a GPU; shardwright report draws what each holds",
    ]


def test_numbers_of_two_digits_stand_under_each_other() -> None:
    plan = a_reported_plan(
        layout=Layout(attention_data=12, expert=12),
        groups=(("a", "b"),),
        nodes_per_replica=2,
        gpus_per_node=8,
    )

    text = to_text(explain(a_report(plan)), title="m", width=110).translate(ASCII)

    assert text.split("Placement\n")[1].splitlines()[:2] == [
        "  a  [  0  1  2  3  4  5  6  7 ]  EP 0-7",
        "  b  [  8  9 10 11  .  .  .  . ]  EP 8-11",
    ]


def test_pools_have_a_column_only_where_another_one_is_shown() -> None:
    elsewhere = replace(an_alternative(Layout(), "slower"), pool="l40s-48gb-8x")

    alone = to_text(explain(a_report()), title="m", width=110)
    several = to_text(
        explain(a_report(alternatives=(*a_report().alternatives, elsewhere))), title="m", width=110
    )

    assert "\n  layout  can serve    per token  against the plan\n" in alone
    assert "\n  layout  pool              can serve    per token  against the plan\n" in several


def test_prices_have_a_column_where_nodes_state_them() -> None:
    priced = replace(an_alternative(Layout(tensor=16), "dearer"), million_tokens_price=1.5)

    text = to_text(explain(a_report(alternatives=(priced,))), title="m", width=110)

    assert (
        "\n  layout  can serve    per token  cost  against the plan\n  TP16    1,210 tok/s  "
        "27 ms      1.50  dearer\n"
    ) in text


def test_relative_prices_have_a_column_where_kinds_of_gpu_were_compared() -> None:
    listed = GpuPrice(per_hour=0.35, basis=PriceBasis.LISTED)
    elsewhere = replace(an_alternative(Layout(tensor=2), "slower"), gpu_price=listed)
    stated = replace(elsewhere, gpu_price=replace(listed, basis=PriceBasis.STATED))

    relative, own = (
        to_text(explain(a_report(alternatives=(other,))), title="m", width=110)
        for other in (elsewhere, stated)
    )

    assert (
        "  layout  can serve    per token  price     against the plan\n"
        "  TP2     1,210 tok/s  27 ms      0.7 H100  slower\n"
    ) in relative
    assert "H100  slower" not in own


def test_gpus_of_somebody_else_are_crossed_out() -> None:
    plan = a_reported_plan(
        layout=Layout(tensor=2, replicas=2),
        groups=(("n1",), ("n1",)),
        nodes_per_replica=1,
        gpus_per_node=2,
    )
    pool = a_pool(gpus_per_node=8, free={0: 5})
    inventory = an_inventory(
        replace(pool, name=plan.pool, nodes=(replace(pool.nodes[0], name="n1"),))
    )

    explanation = explain(a_report(plan), inventory=inventory)

    text = to_text(explanation, title="m", width=110).translate(ASCII)
    assert text.split("Placement\n")[1].split("\n\n")[0].splitlines() == [
        "  replica 0   n1  [ # # . . . x x x ]",
        "  replica 1   n1  [ . . # # . x x x ]",
    ]


@given(counts=st.lists(st.integers(0, 100 * GIB), min_size=4, max_size=4), cells=st.integers(8, 60))
def test_a_bar_has_as_many_signs_as_cells_and_shows_every_part(
    counts: list[int], cells: int
) -> None:
    weights, activations, overhead, kv_cache = counts
    bar = MemoryBar(
        label="0",
        layers="0",
        weights_bytes=weights,
        activations_bytes=activations,
        overhead_bytes=overhead,
        kv_cache_bytes=kv_cache,
        budget_bytes=sum(counts),
        band_bytes=0,
    )

    spans = _bar(bar, cells)

    assert sum(len(span.text) for span in spans) == cells
    assert all(span.text for span, count in zip(spans, counts, strict=True) if count)


_NARROW_MEMORY: Final = {
    60: """\
  GiB of weights #, activations %, overhead =, K/V cache .
  stage  layers                   #     %    =    .     of
  0      0-62    ########%=.....  47.0  1.0  2.0  22.0  72.0
  1      63-125  #########%=....  48.5  1.0  2.0  20.5  72.0""",
    80: """\
  GiB of weights #, activations %, overhead =, K/V cache .
  stage  layers                                  #     %    =    .     of
  0      0-62    ###################%=.........  47.0  1.0  2.0  22.0  72.0
  1      63-125  ###################%=.........  48.5  1.0  2.0  20.5  72.0""",
}


@pytest.mark.parametrize("width", _NARROW_MEMORY)
def test_a_bar_stands_beside_its_figures_where_their_names_have_no_room(width: int) -> None:
    text = to_text(explain(a_report()), title="m", width=width).translate(ASCII)

    memory = text.split("Memory of the fullest GPU\n")[1].split("\n\n")[0]
    assert memory == _NARROW_MEMORY[width]


def test_everything_can_be_said_in_ascii() -> None:
    text = to_text(explain(a_report(), request=a_reported_request()), title="m", width=110)

    assert text.translate(ASCII).isascii()


def test_the_headline_of_a_refusal_has_its_own_role() -> None:
    first = to_lines(explain(a_report(a_refusal())), title="m", width=110)[0]

    assert [span.role for span in first.spans] == [Role.LABEL, Role.REFUSAL]


def test_a_table_that_is_too_wide_becomes_records() -> None:
    lines = table(
        ("name", "meaning"), [("a" * 30, "words that need some room to be read")], width=50
    )

    assert [one.plain() for one in lines] == [
        f"  name     {'a' * 30}",
        "  meaning  words that need some room to be read",
    ]


def test_a_paragraph_keeps_words_that_are_longer_than_the_line_together_when_it_can() -> None:
    assert [one.plain() for one in paragraph("one two-three", width=16)] == ["one two-three"]
