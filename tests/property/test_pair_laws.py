"""Prompts and answers apart: more budget never makes the best pair worse, Auto never takes what
does not surely gain, and a pair stays within the budget.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.costs.workload import Phase
from shardwright.planning.pairing import SURE_GAIN, pair_choice
from shardwright.planning.planner import choose, consider
from shardwright.planning.report import Pair, PairChoice, PairCode
from shardwright.planning.request import PairMode, PairWish
from tests.support.builders_plan import a_model, a_pool, a_request, an_inventory, vllm_traits

LOADS = st.fixed_dictionaries(
    {
        "input_tokens": st.sampled_from([128, 2048, 8192]),
        "output_tokens": st.sampled_from([64, 1024]),
        "concurrency": st.integers(1, 512),
        "tpot_seconds": st.sampled_from([None, 0.012, 0.02, 0.05]),
        "ttft_seconds": st.sampled_from([None, 2.0]),
    }
)


def _choice(load: dict[str, float], gpus: int) -> PairChoice:
    considered = consider(
        a_model("llama-8b"),
        an_inventory(a_pool(nodes=2)),
        a_request(**load, max_gpus=gpus),  # type: ignore[arg-type]
        vllm_traits(),
    )
    wish = PairWish(mode=PairMode.AUTO)
    return pair_choice(considered, choose(considered).outcome, wish)


def _in_time(choice: PairChoice) -> Pair | None:
    missed = any(one.code is PairCode.PAIR_MISSES_LIMITS for one in choice.reasons)
    return None if missed else choice.best


def _worth(pair: Pair) -> float:
    return pair.performance.output_tokens_per_second / pair.gpus


@given(load=LOADS, less=st.integers(2, 15), more=st.integers(1, 8))
@settings(max_examples=12)
def test_what_is_true_of_every_pair(load: dict[str, float], less: int, more: int) -> None:
    small, large = _choice(load, less), _choice(load, min(16, less + more))

    for choice, budget in ((small, less), (large, less + more)):
        if choice.best is None:
            assert choice.reasons
            assert not choice.taken
            continue
        assert choice.best.gpus <= budget
        assert (choice.best.prefill.phase, choice.best.decode.phase) == (
            Phase.PREFILL,
            Phase.DECODE,
        )
        assert choice.taken is not bool(choice.reasons)
        if choice.taken and choice.best.gain is not None:
            assert choice.best.gain >= SURE_GAIN
    before, after = _in_time(small), _in_time(large)
    if before is not None:
        assert after is not None
        assert _worth(after) >= _worth(before) * (1 - 1e-9)
