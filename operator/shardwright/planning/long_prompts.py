"""Do ranks share the tokens of a long request, and if not, why?

Guides advise context parallelism for long prompts, and some call it sequence parallelism;
docs/concepts/layouts.md has both kinds.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from shardwright.errors import Problem
from shardwright.layouts.layout import EngineTraits, PromptSharing
from shardwright.planning.checks import Verdict
from shardwright.planning.phrases import letters
from shardwright.planning.request import Request
from shardwright.planning.select import FeasibleCandidate

LONG_PROMPT: Final = 32_768
"""Unit: tokens of a mean prompt, from which on a plan says it. Basis: assumed; guides name context
parallelism for prompts beyond 32k.
"""

_PROMPTS: Final = {
    PromptSharing.REFUSED: "the usual runner of {engine} refuses it for every model",
    PromptSharing.UNSIZED: "{engine} does not size its K/V cache beside it",
    PromptSharing.NOT_READ: "it is not planned for {engine}",
}


def long_prompt_reasons(
    ranked: Sequence[FeasibleCandidate],
    verdicts: Sequence[Verdict],
    request: Request,
    traits: EngineTraits,
) -> Iterator[str]:
    """Return for long prompts who shares their tokens, best layout first; nothing for others."""
    if request.workload.input_tokens <= LONG_PROMPT:
        return
    if request.space.context is None:
        yield _decode(ranked, verdicts)
    why = _PROMPTS[traits.cuts.prompts].format(engine=f"{traits.name} {traits.version}".strip())
    yield (
        "No ranks share the tokens of a prompt (prefill context parallelism, which guides call "
        f"sequence parallelism): {why}."
    )


def _decode(ranked: Sequence[FeasibleCandidate], verdicts: Sequence[Verdict]) -> str:
    best = ranked[0].candidate.layout
    if best.context > 1:
        return (
            f"{best.context} tensor ranks share the K/V of a request (decode context "
            "parallelism) and hold no copies of it."
        )
    tried = next((each for each in ranked if each.candidate.layout.context > 1), None)
    if tried is not None:
        return (
            "Tensor ranks could share the K/V of a request (decode context parallelism): "
            f"{letters(tried.candidate.layout)} is the best that does, and is no better."
        )
    refused = next(_refused(verdicts), None)
    if refused is not None:
        return (
            "No tensor ranks share the K/V of a request (decode context parallelism): "
            f"{refused.what} {refused.limit}."
        )
    return (
        "No tensor ranks share the K/V of a request (decode context parallelism): in no layout "
        "do they hold copies of K/V that could be shared."
    )


def _refused(verdicts: Sequence[Verdict]) -> Iterator[Problem]:
    return (
        violation.problem
        for verdict in verdicts
        if verdict.candidate.layout.context > 1
        for violation in verdict.violations
        if violation.problem.code == "ContextDegreeImpossible"
    )
