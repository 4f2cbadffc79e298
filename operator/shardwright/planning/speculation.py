"""From which load does drafting cost more than it brings? Asked of the chosen layout."""

from dataclasses import replace

from shardwright.costs.estimator import Estimator
from shardwright.layouts.traits import EngineTraits
from shardwright.modelspec.spec import ModelSpec
from shardwright.planning.request import Request
from shardwright.planning.select import FeasibleCandidate


def loses_from(
    best: FeasibleCandidate, request: Request, model: ModelSpec, traits: EngineTraits
) -> int | None:
    """Return the requests in flight, over all replicas, from which drafts make a token take longer.

    None if that is at no number that runs at once. Drafts and memory are the plan's; loads are
    doubled until drafting loses, and the last step is halved. Larger ones are not tried: a batch
    that computes more makes drafts no cheaper, except for a while where experts fill up.
    """
    # An offered rate would settle the number in flight by itself.
    closed = replace(request.workload, requests_per_second=None)
    prices = Estimator(model, closed, traits, request.storage)
    memory, drafted = prices.memory(best.candidate), best.estimate.draft_tokens

    def loses(in_flight: int) -> bool:
        with_drafts, without = (
            prices.token_seconds(
                # The memory of the plan for both: without drafts there would be more K/V, which is
                # another question.
                best.candidate,
                memory,
                in_flight=in_flight,
                draft_tokens=tokens,
            )
            for tokens in (drafted, 0)
        )
        return with_drafts > without

    layout = best.candidate.layout
    most = memory.running(memory.limits.sequences) * layout.replicas * layout.attention_data
    wins, asked = 0, 1
    while not loses(asked):
        if asked >= most:
            return None
        wins, asked = asked, min(most, 2 * asked)
    while asked - wins > 1:
        middle = (wins + asked) // 2
        wins, asked = (wins, middle) if loses(middle) else (middle, asked)
    return asked
