"""Does the cluster let us in? This is asked before a command is loaded.

Most commands load the planner, and a user without access should learn that within a second.
"""

from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING

from shardwright.cli.cluster_arguments import connection_of
from shardwright.cli.exits import UnreachableError
from shardwright.cli.typed import names_live_model
from shardwright.errors import Problem

if TYPE_CHECKING:
    from shardwright.cli.clusters import Target


def asked_cluster(arguments: Namespace) -> "Target | None":
    """Return the cluster after its first answer, None for a command that needs none.

    Raises:
        UnreachableError: no answer, no credentials, or no right to list nodes where a plan is made
            among them. A model that is named for them and not built in is said, too.
    """
    if not hasattr(arguments, "kubeconfig") or _needs_no_cluster(arguments):
        return None
    try:
        return _asked(arguments)
    except UnreachableError as error:
        raise UnreachableError(*error.problems, *_of_unknown(arguments)) from None


def _asked(arguments: Namespace) -> "Target":
    from shardwright.cli.clusters import Target, unless_forbidden  # noqa: PLC0415 - files need no cluster
    from shardwright.cluster.calls import Call  # noqa: PLC0415 - same
    from shardwright.cluster.resources import DISCOVERY, NODES  # noqa: PLC0415 - same

    among_nodes = _plans_among_nodes(arguments)
    first = NODES if among_nodes else DISCOVERY
    call = Call(
        verb="get", resource=first, path=first.path(), method="GET", query=(("limit", "1"),)
    )
    target = Target(connection=connection_of(arguments), without=without_cluster(arguments))
    if among_nodes:
        # First the right that the plan needs: without it nothing else matters.
        target.ask(lambda client: client.send(call))
    else:
        target.ask(lambda client: unless_forbidden(client.send(call)))
    return target


def _of_unknown(arguments: Namespace) -> Iterator[Problem]:
    """Yield that a typed id is not built in, which nodes would not help."""
    from shardwright.modelspec.catalogue import find_model, near_to  # noqa: PLC0415 - only of a fault

    model = getattr(arguments, "model", None)
    if model and not names_live_model(arguments) and find_model(model) is None:
        yield Problem(
            code="ModelUnknown",
            path="MODEL",
            what=f"{model!r:.200}",
            limit="is not built in",
            gap=near_to(model),
            remedy="with --gpus or --nodes it is read from the hub",
        )


def without_cluster(arguments: Namespace) -> str:
    """Return the alternative without a cluster, empty for a command that needs one."""
    if arguments.command == "import":
        return "give -f FILE to import without a cluster"
    return "give --nodes or --gpus to plan without a cluster" if hasattr(arguments, "nodes") else ""


def _needs_no_cluster(arguments: Namespace) -> bool:
    if arguments.command == "import":
        return bool(arguments.filename)
    return bool(getattr(arguments, "nodes", ()) or getattr(arguments, "gpus", ()))


def _plans_among_nodes(arguments: Namespace) -> bool:
    """Return whether a plan is made here; showing an existing one needs no right to see nodes."""
    return (
        hasattr(arguments, "nodes")
        and not getattr(arguments, "by_operator", False)
        and not names_live_model(arguments)
    )
