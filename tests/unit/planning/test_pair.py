"""Prompts and answers apart: taken where it surely gains, and every no has its number."""

from dataclasses import replace
from typing import Any

import pytest

from shardwright.hardware.inventory import Pool
from shardwright.layouts.layout import Layout
from shardwright.planning.pair_offers import can_pair
from shardwright.planning.pairing import SURE_GAIN, pair_choice, without_nodes
from shardwright.planning.planner import choose, consider
from shardwright.planning.report import Pair, PairChoice, PairCode
from shardwright.planning.request import PairMode, PairWish
from tests.support.builders_plan import (
    a_model,
    a_network,
    a_pool,
    a_request,
    an_inventory,
    vllm_traits,
)

AUTO = PairWish(mode=PairMode.AUTO)
ON = PairWish(mode=PairMode.ON)
LONG_PROMPTS: dict[str, Any] = {"input_tokens": 8192, "output_tokens": 1024}


def _choice(
    model: str, pool: Pool, wish: PairWish = AUTO, traits: Any = None, **asked: Any
) -> PairChoice:
    considered = consider(
        a_model(model), an_inventory(pool), a_request(**asked), traits or vllm_traits()
    )
    return pair_choice(considered, choose(considered).outcome, wish)


def _best(choice: PairChoice) -> Pair:
    assert choice.best is not None
    return choice.best


def _codes(choice: PairChoice) -> list[PairCode]:
    return [reason.code for reason in choice.reasons]


def test_a_pair_is_taken_where_it_gains_more_than_predictions_err() -> None:
    pool = a_pool("B200-SXM-180GB", nodes=8)

    choice = _choice("deepseek-v3", pool, **LONG_PROMPTS, concurrency=512, tpot_seconds=0.04)

    gain = _best(choice).gain
    assert (choice.taken, choice.reasons) == (True, ())
    assert gain is not None
    assert gain >= SURE_GAIN


def test_a_pair_is_taken_where_no_whole_plan_is_in_time() -> None:
    pool = a_pool("B200-SXM-180GB", nodes=8)

    choice = _choice("llama-70b", pool, **LONG_PROMPTS, concurrency=512, tpot_seconds=0.02)

    assert choice.taken
    assert _best(choice).gain is None
    assert _best(choice).performance.tpot_seconds <= 0.02


def test_a_gain_inside_the_error_is_none() -> None:
    choice = _choice("llama-8b", a_pool(nodes=2), **LONG_PROMPTS, concurrency=256)

    assert not choice.taken
    assert _codes(choice) == [PairCode.GAIN_UNCERTAIN]
    assert choice.reasons[0].amount == _best(choice).gain


def test_few_requests_leave_a_pair_idle_and_short_prompts_leave_nothing_to_put_apart() -> None:
    choice = _choice("llama-8b", a_pool(), input_tokens=128, output_tokens=1024, concurrency=4)

    idle, cheap, _ = choice.reasons
    assert (idle.code, cheap.code) == (PairCode.PAIR_WOULD_IDLE, PairCode.PROMPTS_ARE_CHEAP)
    assert 0.5 < idle.amount < 1
    assert 0 <= cheap.amount < 0.15


def test_a_slow_network_moves_what_could_be_computed_sooner() -> None:
    pool = a_pool(nodes=2, network=a_network(10))

    choice = _choice("llama-8b", pool, **LONG_PROMPTS, concurrency=256)

    assert not choice.taken
    assert choice.reasons[0].code is PairCode.TRANSFER_TOO_SLOW
    assert choice.reasons[0].amount > 1


def test_who_wants_a_pair_gets_it_and_is_told_what_it_costs() -> None:
    choice = _choice("llama-8b", a_pool(nodes=2), ON, **LONG_PROMPTS, concurrency=256)

    assert choice.taken
    assert _codes(choice) == [PairCode.PAIR_SLOWER]
    assert choice.reasons[0].amount == _best(choice).gain


def test_a_wanted_pair_that_misses_the_load_says_so_before_what_it_costs() -> None:
    wish = replace(ON, prefill_groups=1, decode_groups=2)

    choice = _choice("llama-8b", a_pool(nodes=2), wish, **LONG_PROMPTS, concurrency=256)

    assert choice.taken
    assert _codes(choice) == [PairCode.PAIR_MISSES_LIMITS, PairCode.PAIR_SLOWER]


@pytest.mark.parametrize(
    ("pool", "asked", "groups", "room"),
    [
        (a_pool(gpus_per_node=1), {}, None, 1),
        (a_pool(nodes=2), {"max_gpus": 1}, None, 1),
        (a_pool(nodes=2, gpus_per_node=1), {"max_nodes": 1}, None, 1),
        (a_pool(), {}, 5, 8),
    ],
    ids=["one GPU", "a budget of one GPU", "a budget of one node", "more groups than GPUs"],
)
def test_a_pair_without_room_says_how_many_groups_have_some(
    pool: Pool, asked: dict[str, Any], groups: int | None, room: int
) -> None:
    wish = replace(ON, prefill_groups=groups, decode_groups=groups)

    choice = _choice("llama-8b", pool, wish, **asked)

    assert (choice.taken, choice.best) == (False, None)
    assert [(one.code, one.amount) for one in choice.reasons] == [(PairCode.PAIR_HAS_NO_ROOM, room)]


def test_stages_hand_over_no_kv() -> None:
    choice = _choice("llama-8b", a_pool(), ON, pipeline=2)

    assert [(one.code, one.amount) for one in choice.reasons] == [
        (PairCode.PAIR_NEEDS_PIPELINE, 2.0)
    ]


def test_an_engine_that_hands_over_no_kv_has_no_pair() -> None:
    traits = replace(vllm_traits(), hands_over_kv=False)

    assert _codes(_choice("llama-8b", a_pool(), ON, traits)) == [PairCode.PAIR_UNSUPPORTED]


def test_both_halves_have_places_of_their_own_within_the_budget() -> None:
    pair = _best(_choice("llama-8b", a_pool(nodes=2), ON, concurrency=256, max_gpus=6))

    halves = pair.prefill.plan, pair.decode.plan
    assert sum(len(plan.groups) * plan.layout.gpus_per_replica for plan in halves) == pair.gpus
    assert pair.gpus <= 6
    assert pair.units * pair.prefill.groups == pair.prefill.plan.layout.replicas
    assert pair.units * pair.decode.groups == pair.decode.plan.layout.replicas


def test_the_groups_of_a_unit_are_those_that_somebody_says() -> None:
    wish = PairWish(mode=PairMode.ON, prefill_groups=1, decode_groups=2)

    pair = _best(_choice("llama-8b", a_pool(nodes=2), wish, concurrency=256, replicas=2))

    assert (pair.units, pair.prefill.groups, pair.decode.groups) == (2, 1, 2)


def test_a_rate_is_carried_with_headroom() -> None:
    considered = consider(
        a_model("llama-8b"),
        an_inventory(a_pool(nodes=2)),
        replace(a_request(), workload=replace(a_request().workload, requests_per_second=20.0)),
        vllm_traits(),
    )

    pair = _best(pair_choice(considered, choose(considered).outcome, ON))

    served = (half.rate * half.plan.layout.replicas for half in (pair.prefill, pair.decode))
    assert min(served) * 0.8 >= 20 * 0.999
    assert pair.performance.requests_per_second == pytest.approx(20)


def test_a_pair_that_does_not_run_holds_no_node() -> None:
    choice = without_nodes(_choice("llama-8b", a_pool(nodes=2), ON))

    assert (_best(choice).prefill.plan.groups, _best(choice).decode.plan.groups) == ((), ())


@pytest.mark.parametrize(
    ("prefill", "decode", "heads", "pairs"),
    [
        (Layout(tensor=4), Layout(tensor=4), 2, True),
        (Layout(tensor=2), Layout(tensor=8), 8, True),
        (Layout(tensor=2), Layout(tensor=8), 4, False),  # two ranks hold one head
        (Layout(tensor=4), Layout(tensor=2), 8, False),
        (Layout(tensor=2), Layout(tensor=3), 8, False),
        (Layout(tensor=8), Layout(tensor=2), None, True),  # every rank holds all
        (Layout(pipeline=2), Layout(), 8, False),
        (Layout(tensor=2, context=2), Layout(tensor=2), 8, False),
    ],
)
def test_which_groups_can_hand_over_kv(
    prefill: Layout, decode: Layout, heads: int | None, *, pairs: bool
) -> None:
    assert can_pair(prefill, decode, heads) is pairs
