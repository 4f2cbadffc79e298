"""Groups that fail and say as much as they can, and groups that serve."""

from shardwright.reconcile.members import Awaited, Failure, GroupState, Situation, Wait

NODES = tuple(f"ip-10-0-0-{index}.eu-central-1.compute.internal" for index in range(4))


def failing_groups(count: int, *, first: int = 0) -> tuple[GroupState, ...]:
    """Return groups whose engines have said 1,024 characters, half of them outside ASCII."""
    failure = Failure(
        rank=3, reason="Error", container="engine", exit_code=1, message="\u00e9x" * 512
    )
    return tuple(
        GroupState(
            name=f"llama-{first + index}",
            situation=Situation.BACKING_OFF,
            waits=(Wait(what=Awaited.POD, ranks=(0, 1, 2, 3), said="x" * 900),),
            restarts=7,
            last_failure=failure,
            failing=True,
            nodes=NODES,
            outage_seconds=600,
        )
        for index in range(count)
    )


def serving_group(index: int) -> GroupState:
    """Return a group of four pods that serves."""
    return GroupState(
        name=f"llama-{index}",
        serves=True,
        updated=True,
        situation=Situation.READY,
        nodes=NODES,
        outage_seconds=600,
    )
