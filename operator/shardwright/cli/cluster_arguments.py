"""The arguments of the commands that ask a cluster; imports no planner, like ``commands``.

kubectl's flags for the connection to a cluster: their help, and the connection they describe.

Whether the kubeconfig has the names in flags is not checked here.
"""

import argparse
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from shardwright.cli.help_text import CONNECTION
from shardwright.cli.quantities import OutputForm, count_of, duration_of

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


STATUS_EXAMPLES = """\
examples:
  %(prog)s                 # of the context's namespace; -A: of all
  %(prog)s llama-405b -w
  %(prog)s -A -o json

exit codes: 0 printed, 2 there is no such model, 3 the cluster cannot be reached, or an internal error
"""  # noqa: E501 - a line of help
DIFF_EXAMPLES = """\
examples:
  %(prog)s -f model.yaml  # what would an edit restart, for how long?
  %(prog)s llama-405b     # what would this release change?
  %(prog)s llama-405b --operator-version 0.1.0 -o json

exit codes: 0 nothing would change, 1 something would, 2 the input must be changed, 3 the cluster cannot be reached, or an internal error
"""  # noqa: E501 - a line of help


IMPORT_EXAMPLES = """\
examples:
  %(prog)s -f lws.yaml > model.yaml
  %(prog)s deployment/llama -n models | \\
    kubectl shardwright plan -f - --server
  kubectl get llmisvc -A -o json | %(prog)s -f - -o json

exit codes: 0 printed, 2 it cannot be imported, 3 the cluster cannot be reached or does not let you read it, or an internal error
"""  # noqa: E501 - a line of help


COMPLETION_EXAMPLES = """\
examples:
  source <(%(prog)s bash)         # in ~/.bashrc
  %(prog)s zsh > "${fpath[1]}/_shardwright"
  %(prog)s fish > ~/.config/fish/completions/shardwright.fish

As a plugin, kubectl completes it by itself, where kubectl_complete-shardwright is in the PATH.
"""


DOCTOR_EXAMPLES = """\
examples:
  %(prog)s
  %(prog)s --network-policies
  %(prog)s --network-policies --trial-namespace models \\
    --image registry.example/python:3.11
  %(prog)s -o json | jq -r '.checks[].findings[].command'

exit codes: 0 nothing is wrong, 1 something is, 2 the options must be changed, 3 the cluster cannot be reached, or an internal error
"""  # noqa: E501 - a line of help


ROLLOUT_EXAMPLES = """\
examples:
  %(prog)s history llama -n models
  %(prog)s undo llama -n models
  %(prog)s undo llama -n models --to-revision 2
  %(prog)s retry llama -n models

exit codes: 0 printed or asked, 2 there is no such model or revision, 3 the cluster cannot be reached, or an internal error
"""  # noqa: E501 - a line of help


ONE_LIST = "text for people; json and yaml are one list, whatever is in it"


class AddCommand(Protocol):
    """Adds a command with its summary and its examples."""

    def __call__(
        self, commands: Any, name: str, *, summary: str, epilog: str = ""
    ) -> ArgumentParser:
        """Return the parser of the command."""


def add_cluster_commands(commands: Any, add: AddCommand) -> None:
    """Add ``status``, ``diff``, ``rollout``, ``doctor``, ``import`` and ``completion``."""
    _add_status(commands, add)
    _add_diff(commands, add)
    _add_rollout(commands, add)
    _add_doctor(commands, add)
    _add_import(commands, add)
    completion = add(
        commands,
        "completion",
        summary="print a shell's script to complete commands and names",
        epilog=COMPLETION_EXAMPLES,
    )
    completion.add_argument("shell", choices=("bash", "zsh", "fish"), help="which shell")


def _add_status(commands: Any, add: AddCommand) -> None:
    command = add(
        commands,
        "status",
        summary="say what each model waits for, why its groups failed, and the next command",
        epilog=STATUS_EXAMPLES,
    )
    command.add_argument("name", nargs="?", metavar="NAME", help="a ShardedModel (default: all)")
    command.add_argument(
        "-w",
        "--watch",
        action="store_true",
        help="continue until Ctrl-C; in a pipe, print the changes",
    )
    _add_output(command, ("text", "wide", "name", "json", "yaml"))
    add_namespace(command, everywhere=True)
    add_connection(command)


def _add_diff(commands: Any, add: AddCommand) -> None:
    command = add(
        commands,
        "diff",
        summary="show the effect of an edit or a release, and the groups that restart",
        epilog=DIFF_EXAMPLES,
    )
    command.add_argument(
        "name", nargs="?", metavar="NAME", help="a ShardedModel of the cluster, as it is; or -f"
    )
    command.add_argument(
        "-f",
        "--filename",
        action="append",
        metavar="FILE",
        help="ShardedModels as they are to be; a file or a folder; '-': stdin",
    )
    command.add_argument(
        "--operator-version", metavar="VERSION", help="fail unless this program is of that release"
    )
    command.add_argument("--settings", metavar="FILE", help="settings for all models, as for plan")
    add_offline(command)
    _add_output(command, ("text", "json", "yaml"))
    add_namespace(command)
    add_connection(command)


def _add_rollout(commands: Any, add: AddCommand) -> None:
    command = add(
        commands,
        "rollout",
        summary="show the history of a model, go back in it, or have the spec tried again",
        epilog=ROLLOUT_EXAMPLES,
    )
    meaning = (
        "history: revisions; undo: one of them runs until the spec changes; retry: the spec "
        "is tried again"
    )
    command.add_argument("action", choices=("history", "undo", "retry"), help=meaning)
    command.add_argument("name", metavar="NAME", help="name of the ShardedModel")
    command.add_argument(
        "--to-revision",
        type=count_of,
        metavar="NUMBER",
        help="of undo: which one (default: the newest that does not run)",
    )
    _add_output(
        command, ("text", "json", "yaml"), "of history: a table, or one list as json or yaml"
    )
    add_namespace(command)
    add_connection(command)


def _add_doctor(commands: Any, add: AddCommand) -> None:
    command = add(
        commands,
        "doctor",
        summary="check an installation, and name the next commands",
        epilog=DOCTOR_EXAMPLES,
    )
    command.add_argument(
        "--network-policies",
        action="store_true",
        help="measure whether NetworkPolicies are enforced; makes a short-lived pod, and a "
        "policy for it",
    )
    command.add_argument(
        "--trial-namespace",
        default="",
        metavar="NAME",
        help="namespace of the pod (default: one that is made and deleted)",
    )
    command.add_argument(
        "--image",
        default="",
        metavar="IMAGE",
        help="of the pod, with Python 3 in it (default: the operator's)",
    )
    _add_output(
        command,
        ("text", "json", "yaml"),
        "text for people; json and yaml are one object with every check",
    )
    add_connection(command)


def _add_import(commands: Any, add: AddCommand) -> None:
    command = add(
        commands,
        "import",
        summary="turn vLLM models of LeaderWorkerSet, KServe, KAITO or a Deployment into "
        "ShardedModels",
        epilog=IMPORT_EXAMPLES,
    )
    command.add_argument(
        "name",
        nargs="*",
        metavar="KIND/NAME",
        help="such as deployment/NAME, lws/NAME or dgd/NAME; or -f",
    )
    command.add_argument(
        "-f",
        "--filename",
        action="append",
        metavar="FILE",
        help="file or folder with them ('-': stdin)",
    )
    command.add_argument(
        "--pin",
        action="store_true",
        help="keep the degrees of parallelism (default: the planner chooses)",
    )
    command.add_argument(
        "--model", metavar="ID", help="id of the model, if the object names only a folder"
    )
    _add_output(
        command,
        ("yaml", "json"),
        "yaml: manifests, and on stderr the omissions; json: one list with both",
    )
    add_namespace(command)
    add_connection(command)


def _add_output(command: ArgumentParser, formats: tuple[str, ...], meaning: str = ONE_LIST) -> None:
    about = f"{meaning} (default: {formats[0]})"
    command.add_argument(
        "-o", "--output", choices=formats, default=formats[0], action=OutputForm, help=about
    )
