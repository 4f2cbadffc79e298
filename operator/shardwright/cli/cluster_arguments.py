"""The arguments of the commands that ask a cluster; imports no planner, like ``arguments``."""

from argparse import ArgumentParser
from typing import Any, Protocol

from shardwright.cli.connecting import add_connection, add_namespace, add_offline
from shardwright.cli.numbers import OutputForm, count_of

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
        help="deployment/, lws/, llmisvc/ or workspace/NAME; they are of the cluster; or -f",
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
