"""kubectl's flags for the connection to a cluster: their help, and the connection they describe.

Whether the kubeconfig has the names in flags is not checked here.
"""

import argparse
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from shardwright.cli.help_text import CONNECTION
from shardwright.cli.numbers import duration_of

if TYPE_CHECKING:
    from shardwright.cluster.connection import Connection

FLAGS: Final[tuple[tuple[str, str, str], ...]] = (
    ("--cluster", "NAME", "a cluster of the kubeconfig instead of the context's"),
    ("--user", "NAME", "a user of the kubeconfig instead of the context's"),
    ("--token", "TOKEN", "bearer token; others see it in the list of processes"),
    (
        "--certificate-authority",
        "FILE",
        "certificates of the authorities that may sign the API server's",
    ),
    ("--client-certificate", "FILE", "certificate to show to the API server"),
    ("--client-key", "FILE", "its key"),
    ("--tls-server-name", "NAME", "name that the API server's certificate is checked for"),
    ("--as", "USER", "act as this user (needs the right to impersonate)"),
    ("--as-uid", "UID", "uid of that user"),
)
"""Flags that take one value: name, placeholder, help."""

SECONDS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}

ArgumentGroup: TypeAlias = "argparse._ArgumentGroup"  # noqa: SLF001 - it has no public name


def add_connection(
    command: argparse.ArgumentParser, *, context: bool = True, server: bool = True
) -> None:
    """Add the flags; some commands give ``context`` and ``server`` a wider meaning of their own."""
    group = command.add_argument_group(CONNECTION)
    group.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="default: $KUBECONFIG, which may be a list, else ~/.kube/config",
    )
    if context:
        group.add_argument(
            "--context",
            metavar="NAME",
            help="a context of the kubeconfig (default: the current one)",
        )
    for flag, placeholder, text in FLAGS:
        group.add_argument(flag, metavar=placeholder, dest=_attribute(flag), help=text)
    group.add_argument(
        "--as-group",
        metavar="GROUP",
        action="append",
        default=[],
        help="a group to act as a member of; may be repeated",
    )
    if server:
        group.add_argument(
            "-s", "--server", metavar="URL", dest="api_server", help="address of the API server"
        )
    _add_conditions(group)


def add_offline(group: "argparse._ActionsContainer") -> None:
    """Add the option that keeps the hub from being asked."""
    group.add_argument(
        "--offline",
        action="store_true",
        help="do not ask the hub for a model's config; 'fetch --help' says what it is told",
    )


def _add_conditions(group: ArgumentGroup) -> None:
    group.add_argument(
        "--insecure-skip-tls-verify",
        action="store_true",
        help="do not check the API server's certificate: anybody can pose as it",
    )
    group.add_argument(
        "--request-timeout",
        metavar="TIME",
        type=_seconds,
        help="how long all answers together may take, for example 5s (default: 60s for each)",
    )


def add_namespace(command: argparse.ArgumentParser, *, everywhere: bool = False) -> None:
    """Add ``-n`` and, for commands that show several resources, ``-A``."""
    one_of = command.add_mutually_exclusive_group()
    one_of.add_argument(
        "-n", "--namespace", metavar="NAME", default="", help="namespace (default: the context's)"
    )
    if everywhere:
        one_of.add_argument("-A", "--all-namespaces", action="store_true", help="all namespaces")


class PlannedByServer(argparse.Action):
    """``--server`` alone lets the operator plan, ``--server URL`` is kubectl's; both may
    be given.
    """

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Store either meaning."""
        if values is None:
            namespace.by_operator = True
        elif isinstance(values, str) and values.startswith(("http://", "https://")):
            namespace.api_server = values
        else:
            parser.error(
                f"argument {option_string}: {values!r:.60} is not a URL; alone it lets the "
                "operator plan"
            )


def connection_of(arguments: Namespace) -> "Connection":
    """Return the connection that the flags describe; flags a command lacks count as not given."""
    from shardwright.cluster.connection import Connection  # noqa: PLC0415 - what asks no cluster loads nothing of it

    given = {
        name: getattr(arguments, name, None) or None
        for name in map(_attribute, ("--kubeconfig", "--context"))
    }
    named = {_attribute(flag): getattr(arguments, _attribute(flag), None) for flag, *_ in FLAGS}
    return Connection(
        **given,
        **named,
        namespace=getattr(arguments, "namespace", None) or None,
        server=getattr(arguments, "api_server", None),
        insecure=getattr(arguments, "insecure_skip_tls_verify", False),
        as_groups=tuple(getattr(arguments, "as_group", ())),
        request_seconds=getattr(arguments, "request_timeout", None),
    )


def _attribute(flag: str) -> str:
    """Return a flag's name among the parsed arguments; ``as`` is a keyword of Python.

    >>> _attribute("--as"), _attribute("--as-uid"), _attribute("--client-key")
    ('as_user', 'as_uid', 'client_key')
    """
    return "as_user" if flag == "--as" else flag.removeprefix("--").replace("-", "_")


def _seconds(text: str) -> float | None:
    """Read a duration as kubectl does; 0 is no limit."""
    seconds = duration_of(text, SECONDS)
    if seconds is None:
        raise argparse.ArgumentTypeError(f"{text!r:.40} is not a duration; write for example 5s")
    return seconds or None
