"""The wait of a group and its failure, in words for people; the last step, and nothing reads it
back.
"""

import re
from collections.abc import Sequence
from typing import Final

from shardwright.api.record import Cause, Rollback
from shardwright.improving import GAIN_MIN
from shardwright.planning.gain import Better, Prospect
from shardwright.planning.phrases import copies
from shardwright.reconcile.states import Awaited, GroupState, Wait
from shardwright.rendering.fixes import Fix
from shardwright.rendering.gang_scheduling import ALPHA_GROUPS

LINE_LENGTH: Final = 200
"""What a sentence quotes of a container's last line, characters; status.groups has all that is kept
of it.
"""

_HUB_REFUSAL: Final = re.compile(
    r"GatedRepo|gated repo|Access to model \S+ is restricted|40[13] Client "
    r"Error.*(?:huggingface|/resolve/|/api/models/)"
)
"""What the hub's client says of 401 and 403. Source: huggingface_hub 2.4, ``hf_raise_for_status``;
transformers.
"""

_HUB_REFUSES: Final = (
    "; the Hugging Face hub refuses the model (401 or 403): accept its terms there, and name a "
    "Secret with a token of that "
    "account in spec.model.weights.secretRef"
)

SHOWN_WAITS: Final = 3
"""How many different things that ranks wait for are said; assumed: the first ones tell what is
wrong.
"""

_WORDS: Final = {
    Awaited.DELETION: "the StatefulSet is being deleted",
    Awaited.EARLIER_PODS: "pods of an earlier StatefulSet are still there",
    Awaited.PODS_GONE: "waiting for all pods to be gone",
    Awaited.LATE_POD: "{ranks} on node {said} should be gone by now",
    Awaited.STOP: "stops as a whole before it starts again",
    Awaited.STOP_AGAIN: "was scaled up while it stopped",
    Awaited.NODES: "waits for the autoscaler to make {said}",
    Awaited.LATE_NODES: (
        "{said} should have been made by now: look "
        "at what the autoscaler says of the pods"
    ),
    Awaited.ROOM: (
        "pods of others have taken GPUs of its nodes; "
        "starts again as a whole when there is room"
    ),
    Awaited.PAUSE: "restarts at {said}",
    Awaited.CHANGE: "its engine has failed {said} times in a row",
    Awaited.TURN: "serves as it was until it is its turn",
    Awaited.PARTITION: "keeps its pods until spec.rollout.partition is lowered",
    Awaited.STOPPED_ROLLOUT: "serves as it was: {said} does not come up with the changed pods",
    Awaited.OVERDUE: "has had its nodes for {said} s and is not ready",
    Awaited.FORMER: "{said} serves meanwhile",
    Awaited.FORMER_TOO: "{said} is not ready either",
    Awaited.PODS_CREATED: "{said} pods not created yet",
    Awaited.POD: "{ranks}: {said}",
    Awaited.PROBE: "{ranks}: runs, but its readiness probe fails",
    Awaited.PEERS: "{ranks}: runs, and has not met all ranks of its group",
    Awaited.START: "{ranks}: starting",
}

NO_PLACE_ASKED: Final = (
    "running groups are kept; change the spec, or "
    "retry it with 'kubectl shardwright rollout retry'"
)
"""What is done for a revision that has no place, and how that ends."""


def alpha_groups_sentence() -> str:
    """Return the step to take before Kubernetes is upgraded, if the API of PodGroups goes."""
    how = "docs/howto/kubernetes-1.37.md says how"
    return (
        f"PodGroups are written as {ALPHA_GROUPS}, which Kubernetes 1.37 does not have: they "
        f"must go before the upgrade ({how})"
    )


def waiting_sentence(state: GroupState) -> str:
    """Return the sentence on why a group waits, empty if it does not wait."""
    of_group = [
        wait for wait in state.waits if not wait.ranks or wait.what is Awaited.LATE_POD
    ]
    of_ranks = [wait for wait in state.waits if wait not in of_group]
    return "; ".join(_sentence(wait) for wait in (*of_group, *of_ranks[:SHOWN_WAITS]))


def _sentence(wait: Wait) -> str:
    ranks = (
        f"rank{'s' if len(wait.ranks) > 1 else ''} {', '.join(map(str, wait.ranks))}"
    )
    return _WORDS[wait.what].format(ranks=ranks, said=wait.said)


def failure_sentence(state: GroupState) -> str:
    """Return why a group failed last."""
    failure = state.last_failure
    if failure is None:
        return "has not failed"
    code = "" if failure.exit_code is None else f" with exit code {failure.exit_code}"
    who = f"rank {failure.rank}" + (
        f", container {failure.container}" if failure.container else ""
    )
    said = failure.message.splitlines()[-1:]
    quoted = "".join(f": {line[:LINE_LENGTH]}" for line in said)
    return (
        f"{who}: {failure.reason}{code}, restart "
        f"{state.restarts}{quoted}{_HUB_REFUSES if _of_hub(failure.message) else ''}"
    )


def _of_hub(message: str) -> bool:
    """Return whether a container has ended because the Hugging Face hub gives it nothing."""
    return _HUB_REFUSAL.search(message) is not None


def not_ready_sentence(state: GroupState) -> str:
    """Return the wait of a group and, if it failed before, why: the first thing that somebody reads
    must have the cause.
    """
    waits = f"{state.name}: {waiting_sentence(state) or state.situation}"
    return f"{waits}; it failed: {failure_sentence(state)}" if state.failing else waits


def rollback_sentence(
    rollback: Rollback, number: int | None, image: str, *, placed: bool = True
) -> str:
    """Return which revision runs in place of the spec, why, and until when; or that it has no place
    (``placed``).

    >>> asked = Rollback(to="b6", instead_of="0c", cause=Cause.ASKED)
    >>> rollback_sentence(asked, 2, "vllm/vllm-openai:v0.32.0")
    'revision 2 (vllm/vllm-openai:v0.32.0) runs in place of the spec, as asked, until the spec changes'
    >>> rollback_sentence(asked, 2, "vllm/vllm-openai:v0.32.0", placed=False).partition(
    ...     ": "
    ... )[0]
    'revision 2 (vllm/vllm-openai:v0.32.0) is to run in place of the spec, as asked, and has no place'
    >>> failed = Rollback(
    ...     to="b6", instead_of="b6", cause=Cause.ENGINE_FAILED, group="llama-0"
    ... )
    >>> rollback_sentence(failed, 2, "vllm").partition("; ")[0]
    'revision 2 (vllm) runs with pods of an earlier release in place of those of this one, with which llama-0 failed again and again'
    """  # noqa: E501 - a sentence as it is said
    which = (
        f"{revision_named(number)} ({image})"
        if number is not None
        else revision_named(number)
    )
    of_release = rollback.to == rollback.instead_of
    instead = (
        "with pods of an earlier release in place of those of this one"
        if of_release
        else "in place of the spec"
    )
    runs = f"{which} {'runs' if placed else 'is to run'} {instead}"
    if rollback.cause is Cause.ASKED:
        return (
            f"{runs}, as asked, until the spec changes"
            if placed
            else f"{runs}, as asked, and has no place: {NO_PLACE_ASKED}"
        )
    why = (
        "was not ready in time"
        if rollback.cause is Cause.PROGRESS_DEADLINE_EXCEEDED
        else "failed again and again"
    )
    said = f" ({rollback.said[:LINE_LENGTH]})" if rollback.said else ""
    without = (
        "" if placed else "; no nodes are free for it, so the groups that run are kept"
    )
    fix = "change the spec" if of_release else "correct the spec"
    again = f"{fix}, or retry it with 'kubectl shardwright rollout retry'"
    return f"{runs}, with which {rollback.group} {why}{said}{without}; {again}"


def revision_named(number: int | None) -> str:
    """Return a revision by its number, if that is known."""
    return "an earlier revision" if number is None else f"revision {number}"


def no_place_sentence(number: int | None) -> str:
    """Return that it is a revision which has no place, and when that ends.

    >>> no_place_sentence(1).partition(":")[0]
    'revision 1, which is being restored, needs this'
    """
    return f"{revision_named(number)}, which is being restored, needs this: {NO_PLACE_ASKED}"


def better_sentence(found: Better) -> str:
    """Return which plan would be better, by how much, and when it takes the place of the one that
    stands.

    >>> from shardwright.layouts.layout import Layout
    >>> from shardwright.planning.request import OptimizeFor
    >>> better_sentence(
    ...     Better(
    ...         layout=Layout(tensor=8),
    ...         pool="h200",
    ...         objective=OptimizeFor.LATENCY,
    ...         gain=0.07,
    ...     )
    ... )
    'tensor 8 on h200 would be 7% better by Latency; a plan that serves gives way to one that is 10% better, at most once an hour'
    >>> found = Better(
    ...     layout=Layout(),
    ...     pool="a100",
    ...     objective=OptimizeFor.THROUGHPUT,
    ...     gain=0.5,
    ...     relisted=True,
    ... )
    >>> better_sentence(found).partition("; ")[2]
    'only by list prices that the plan was not made with: it stands until the spec changes'
    """  # noqa: E501 - a sentence as it is said
    gives_way = (
        "a plan that serves gives way to one that is "
        f"{GAIN_MIN:.0%} better, at most once an hour"
    )
    if found.relisted:
        gives_way = (
            "only by list prices that the plan was not "
            "made with: it stands until the spec changes"
        )
    return f"{copies(found.layout)} on {found.pool} would {_brings(found)}; {gives_way}"


def _brings(found: Better) -> str:
    return (
        "carry the load"
        if found.gain is None
        else f"be {found.gain:.0%} better by {found.objective}"
    )


def anew_sentence(anew: Prospect | None, better: Better | None) -> str:
    """Return the plan that would be made now, and its gain; empty if none was looked for, or there
    is none.

    >>> from shardwright.layouts.layout import Layout
    >>> from shardwright.planning.request import OptimizeFor
    >>> new = Prospect(layout=Layout(tensor=8), pool="h200")
    >>> anew_sentence(
    ...     new,
    ...     Better(
    ...         layout=new.layout,
    ...         pool=new.pool,
    ...         objective=OptimizeFor.LATENCY,
    ...         gain=0.07,
    ...     ),
    ... )
    'a new plan would be tensor 8 on h200, and be 7% better by Latency'
    >>> anew_sentence(new, None)
    'a new plan would be tensor 8 on h200'
    """
    if anew is None:
        return ""
    said = f"a new plan would be {copies(anew.layout)} on {anew.pool}"
    return f"{said}, and {_brings(better)}" if better else said


def fixes_sentence(fixes: Sequence[Fix]) -> str:
    """Return the faults that a restart fixes, as the end of a sentence. It is empty if none is
    known.

    >>> fixes_sentence(
    ...     [Fix(id="CVE-1", what="it could be ended", source="https://example.com/1")]
    ... )
    '; that fixes CVE-1 (it could be ended, https://example.com/1)'
    >>> fixes_sentence([])
    ''
    """
    return (
        f"; that fixes {', '.join(f'{fix.id} ({fix.what}, {fix.source})' for fix in fixes)}"
        if fixes
        else ""
    )
