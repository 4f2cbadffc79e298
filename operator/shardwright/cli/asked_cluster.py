"""The cluster that a command asks: it has let us in, or says why not, before the command is loaded.

Most commands load the planner, and whoever does not get in is to be told within a second.
"""

from argparse import Namespace
from typing import TYPE_CHECKING

from shardwright.cli.connecting import connection_of

if TYPE_CHECKING:
    from shardwright.cli.clusters import Target


def asked_cluster(arguments: Namespace) -> "Target | None":
    """Return the cluster after its first answer, None for a command that asks none.

    Raises:
        UnreachableError: no answer, no credentials, or no right to list nodes where a plan is made
            among them.
    """
    if not hasattr(arguments, "kubeconfig") or _has_files(arguments):
        return None
    from shardwright.cli.clusters import Target  # noqa: PLC0415 - files need no cluster
    from shardwright.cluster.calls import Call  # noqa: PLC0415 - same
    from shardwright.cluster.resources import DISCOVERY, NODES  # noqa: PLC0415 - same

    among_nodes = hasattr(arguments, "nodes") and not getattr(
        arguments, "by_operator", False
    )
    first = NODES if among_nodes else DISCOVERY  # which everybody with a name may read
    call = Call(
        verb="get",
        resource=first,
        path=first.path(),
        method="GET",
        query=(("limit", "1"),),
    )
    target = Target(connection=connection_of(arguments), without=_without(arguments))
    target.ask(lambda client: client.send(call))
    return target


def _has_files(arguments: Namespace) -> bool:
    """Return whether files or options say all that the cluster would."""
    if arguments.command == "import":
        return bool(arguments.filename)
    return bool(getattr(arguments, "nodes", ()) or getattr(arguments, "gpus", ()))


def _without(arguments: Namespace) -> str:
    """Return what to do where there is no cluster, empty for what needs one."""
    if arguments.command == "import":
        return "give -f FILE to import without a cluster"
    return (
        "give --nodes or --gpus to plan without a cluster"
        if hasattr(arguments, "nodes")
        else ""
    )
