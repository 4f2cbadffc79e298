"""What a group waits for and why it failed, in words for people; the last step, and nothing reads it back."""

from collections.abc import Sequence
from typing import Final

from shardwright.api.record import Cause, Rollback
from shardwright.improving import GAIN_MIN
from shardwright.planning.gain import Better
from shardwright.planning.phrases import copies
from shardwright.reconcile.states import Awaited, GroupState, Wait
from shardwright.rendering.fixes import Fix
from shardwright.rendering.scheduling import ALPHA_GROUPS

LINE_LENGTH: Final = 200
"""What a sentence quotes of a container's last line, characters; status.groups has all that is kept of it."""

SHOWN_WAITS: Final = 3
"""How many different things that ranks wait for are said; assumed: the first ones tell what is wrong."""

_WORDS: Final = {
    Awaited.DELETION: "the StatefulSet is being deleted",
    Awaited.EARLIER_PODS: "pods of an earlier StatefulSet are still there",
    Awaited.PODS_GONE: "waiting for all pods to be gone",
    Awaited.LATE_POD: "{ranks} on node {said} should be gone by now",
    Awaited.STOP: "stops as a whole before it starts again",
    Awaited.STOP_AGAIN: "was scaled up while it stopped",
    Awaited.NODES: "waits for the autoscaler to make {said}",
    Awaited.LATE_NODES: "{said} should have been made by now: look at what the autoscaler says of the pods",
    Awaited.ROOM: "pods of others have taken GPUs of its nodes; starts again as a whole when there is room",
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


def alpha_groups_sentence() -> str:
    """Return what is to be done before Kubernetes is upgraded, where PodGroups are of an API that goes."""
    how = "docs/howto/kubernetes-1.37.md says how"
    return (
        f"PodGroups are written as {ALPHA_GROUPS}, which Kubernetes 1.37 does not have: they must go before the upgrade ({how})"
    )


def waiting_sentence(state: GroupState) -> str:
    """Return what a group waits for, empty where it waits for nothing."""
    of_group = [wait for wait in state.waits if not wait.ranks or wait.what is Awaited.LATE_POD]
    of_ranks = [wait for wait in state.waits if wait not in of_group]
    return "; ".join(_sentence(wait) for wait in (*of_group, *of_ranks[:SHOWN_WAITS]))


def _sentence(wait: Wait) -> str:
    ranks = f"rank{'s' if len(wait.ranks) > 1 else ''} {', '.join(map(str, wait.ranks))}"
    return _WORDS[wait.what].format(ranks=ranks, said=wait.said)


def failure_sentence(state: GroupState) -> str:
    """Return why a group failed last."""
    failure = state.last_failure
    if failure is None:
        return "has not failed"
    code = "" if failure.exit_code is None else f" with exit code {failure.exit_code}"
    who = f"rank {failure.rank}" + (f", container {failure.container}" if failure.container else "")
    said = failure.message.splitlines()[-1:]
    return f"{who}: {failure.reason}{code}, restart {state.restarts}" + "".join(f": {line[:LINE_LENGTH]}" for line in said)


def not_ready_sentence(state: GroupState) -> str:
    """Return what a group waits for and, where it failed before, why: what somebody reads first must have the cause."""
    waits = f"{state.name}: {waiting_sentence(state) or state.situation}"
    return f"{waits}; it failed: {failure_sentence(state)}" if state.failing else waits


def rollback_sentence(rollback: Rollback, number: int | None, image: str) -> str:
    """Return which revision runs in place of what the spec says, why, and until when.

    >>> asked = Rollback(to="b6", instead_of="0c", cause=Cause.ASKED)
    >>> rollback_sentence(asked, 2, "vllm/vllm-openai:v0.32.0")
    'revision 2 (vllm/vllm-openai:v0.32.0) runs in place of the spec, as asked, until the spec changes'
    """
    which = f"revision {number} ({image})" if number is not None else "an earlier revision"
    if rollback.cause is Cause.ASKED:
        return f"{which} runs in place of the spec, as asked, until the spec changes"
    why = "was not ready in time" if rollback.cause is Cause.PROGRESS_DEADLINE_EXCEEDED else "failed again and again"
    said = f" ({rollback.said[:LINE_LENGTH]})" if rollback.said else ""
    again = "correct the spec, or have it tried again with 'kubectl shardwright rollout retry'"
    return f"{which} runs in place of the spec, with which {rollback.group} {why}{said}; {again}"


def better_sentence(found: Better) -> str:
    """Return which plan would be better, by how much, and when it takes the place of the one that stands.

    >>> from shardwright.layouts.layout import Layout
    >>> from shardwright.planning.request import OptimizeFor
    >>> better_sentence(Better(layout=Layout(tensor=8), pool="h200", objective=OptimizeFor.LATENCY, gain=0.07))
    'tensor 8 on h200 would be 7% better by Latency; a plan that serves gives way to one that is 10% better, at most once an hour'
    """
    gives_way = f"a plan that serves gives way to one that is {GAIN_MIN:.0%} better, at most once an hour"
    brings = "carry the load" if found.gain is None else f"be {found.gain:.0%} better by {found.objective}"
    return f"{copies(found.layout)} on {found.pool} would {brings}; {gives_way}"


def fixes_sentence(fixes: Sequence[Fix]) -> str:
    """Return what a restart mends, to be put at the end of a sentence: empty where nothing is known.

    >>> fixes_sentence([Fix(id="CVE-1", what="it could be ended", source="https://example.com/1")])
    '; that mends CVE-1 (it could be ended, https://example.com/1)'
    >>> fixes_sentence([])
    ''
    """
    return f"; that mends {', '.join(f'{fix.id} ({fix.what}, {fix.source})' for fix in fixes)}" if fixes else ""
