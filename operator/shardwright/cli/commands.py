"""The words that can be typed: commands, options and their help; help loads no planner."""

import argparse
import difflib
import sys
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, Final, NoReturn, TypeAlias

from shardwright import __version__
from shardwright.cli.cluster_arguments import (
    ArgumentGroup,
    PlannedByServer,
    add_cluster_commands,
    add_connection,
    add_offline,
)
from shardwright.cli.exits import Exit
from shardwright.cli.help_text import WORDS_PAGE, HelpAll, HelpFormatter, first_screen
from shardwright.cli.quantities import OutputForm, count_of, gbps_of, parts_of
from shardwright.errors import Problem
from shardwright.hardware.capabilities import SERVED_KINDS
from shardwright.sinks import in_terminal

_WORDS = f" {WORDS_PAGE} explains each part and word."
_MOST_OPTIONS = 12  # the full list is longer than a screen

PLAN_EXAMPLES = """\
examples:
  %(prog)s meta-llama/Llama-3.1-70B-Instruct --gpus 16xH100
  %(prog)s deepseek-ai/DeepSeek-V3 --gpus 32xH200 --rps 5 --ttft 2s
  %(prog)s Qwen/Qwen3-8B --gpus 8xH100 --tp 4 --replicas 2
  %(prog)s meta-llama/Llama-3.1-70B-Instruct --gpus 16xH100 \\
    -o manifest | kubectl apply -f -
  %(prog)s -f model.yaml --nodes nodes.yaml
  kubectl get nodes,pods -A -o json | %(prog)s -f model.yaml --nodes -
  %(prog)s -f model.yaml --context my-cluster -o json
  %(prog)s llama-70b -n models
  %(prog)s -f model.yaml --server

exit codes:
  0  there is a plan
  1  nothing fits; the explanation says why and what is closest
  2  the input must be changed; each problem is one line on stderr
  3  the cluster or the hub cannot be reached, or an internal error
"""
EXPLAIN_EXAMPLES = """\
examples:
  %(prog)s -f model.yaml --nodes nodes.yaml
  %(prog)s -f model.yaml > why.txt

exit codes: as for plan
"""
REPORT_EXAMPLES = """\
examples:
  %(prog)s -f model.yaml --nodes nodes.yaml > plan.html
  %(prog)s meta-llama/Llama-3.1-8B-Instruct --gpus 2xH100 > plan.html

The page needs no network. Beside the plan it holds what would be planned under up to 63 other loads, so it takes
some seconds of CPU. It shows one ShardedModel.

exit codes: as for plan
"""  # noqa: E501 - a line of help
RENDER_EXAMPLES = """\
examples:
  %(prog)s -f model.yaml --nodes nodes.yaml > manifests.yaml
  %(prog)s -f model.yaml | kubectl diff -f -

exit codes: as for plan; 1 also for a plan that can be shown but not yet deployed
"""
SIZE_EXAMPLES = """\
examples:
  %(prog)s meta-llama/Llama-3.1-70B-Instruct --rps 50 --ttft 2s \\
    --gpus H100,L40S
  %(prog)s deepseek-ai/DeepSeek-V3 --concurrency 256 --tpot 50ms \\
    --gpus H200 --network 400 -o json

exit codes: 0 some number of GPUs carries the load, 1 none does, 2 and 3 as for plan
"""
PREDICT_EXAMPLES = """\
examples:
  %(prog)s Qwen/Qwen3-8B --gpus 8xH100 --tp 4 --replicas 2 --rps 20
  %(prog)s --input cases.jsonl --output predictions.jsonl
  %(prog)s < cases.jsonl | jq .performance.outputTokensPerSecond

exit codes: of MODEL as for plan; else 0 every case has an answer ("fits": false is one), 2 a case could not be read,
3 an internal error
"""  # noqa: E501 - a line of help
FETCH_EXAMPLES = """\
examples:
  %(prog)s acme/llama-3.1-70b-support | \\
    kubectl apply --server-side -n NAMESPACE -f -
  HF_TOKEN=hf_... %(prog)s acme/private \\
    --revision 0123456789abcdef0123456789abcdef01234567

'plan' and the other commands that take an id do the same for models that are not built in: the hub gets the id, your
token and nothing else, within 3 s. What it answers is kept in ~/.cache/shardwright/hub and then used without asking;
fetch always asks.

As Hugging Face's own client it reads HF_TOKEN (or what 'hf auth login' has kept), HF_ENDPOINT, HF_HUB_OFFLINE (then
its cache alone), HF_HOME, HF_HUB_CACHE and HTTPS_PROXY.

exit codes: 0 printed, 2 the hub does not give it, 3 the hub cannot be reached, or an internal error
"""  # noqa: E501 - a line of help
MODELS_EXAMPLES = """\
examples:
  %(prog)s llama-3
  %(prog)s -o json
"""
GPUS_EXAMPLES = """\
examples:
  %(prog)s h100
  kubectl label node NODE shardwright.io/gpu-model=H100-SXM-80GB
"""
CRD_EXAMPLES = """\
examples:
  %(prog)s | kubectl apply --server-side -f -
"""


def program_name(argv0: str) -> str:
    """Return the name the user called us by: our own, or the kubectl plugin's.

    >>> program_name("/usr/local/bin/kubectl-shardwright"), program_name("shardwright")
    ('kubectl shardwright', 'shardwright')
    """
    return (
        "kubectl shardwright"
        if PurePath(argv0).name.startswith("kubectl-shardwright")
        else "shardwright"
    )


class UsageExit(SystemExit):
    """The end of the process because of a typed word; ``problem`` is already on stderr."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(int(Exit.BAD_INPUT))
        self.problem = problem


class Parser(argparse.ArgumentParser):
    """ArgumentParser that escapes foreign text in errors.

    It takes no abbreviated options: an abbreviation may become ambiguous when an option is added.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"allow_abbrev": False} | settings)

    def error(self, message: str) -> NoReturn:
        """End the process with one line about the error.

        Raises:
            UsageExit: always; readers of documents get it as well.
        """
        problem = Problem(code="NotAllowed", what=message, remedy=f"see '{self.prog} --help'")
        self._print_message(f"error[NotAllowed]: {in_terminal(problem.sentence())}\n", sys.stderr)
        raise UsageExit(problem)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            near = difflib.get_close_matches(str(value), action.choices or (), n=1)
            if near:
                error.message += f"; did you mean {near[0]}?"
            raise

    def format_help(self) -> str:
        """Return the whole help, or the first screen of a long one, at any terminal width."""
        return (
            first_screen(self, self._action_groups)
            if len(self._actions) > _MOST_OPTIONS
            else super().format_help()
        )

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Return the parsed words; this parser, not the whole program's, reports surplus ones."""
        found, lost = super().parse_known_args(args, namespace)
        if lost and self._subparsers is None:
            # After an unknown option it is unclear which words are its values.
            options = [word for word in lost if word.startswith("-") and word != "-"]
            unknown = options or lost
            near = difflib.get_close_matches(
                unknown[0].partition("=")[0], self._option_string_actions, n=1
            )
            hint = f" (did you mean {near[0]}?)" if near else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return found, lost


def build_parser(program: str) -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = Parser(
        prog=program,
        description="Split a large language model across your GPUs: see the plan, the "
        "manifests, and why.",
        epilog=f"'{program} COMMAND --help' explains a command.",
    )
    parser.add_argument("--version", action="version", version=f"shardwright {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    _add_plan(commands)
    _add_explain(commands)
    _add_report(commands)
    _add_render(commands)
    _add_size(commands)
    add_cluster_commands(commands, _add_command)
    _add_predict(commands)
    _add_fetch(commands)
    _add_models(commands)
    _add_gpus(commands)
    _add_crd(commands)
    _add_version(commands)
    return parser


Commands: TypeAlias = "argparse._SubParsersAction[Parser]"  # noqa: SLF001 - it has no public name


def _add_command(
    commands: Commands, name: str, *, summary: str, epilog: str = "", more: str = ""
) -> argparse.ArgumentParser:
    command = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.{more}",
        epilog=epilog,
        formatter_class=HelpFormatter,
    )
    command.add_argument(
        "--help-all", nargs=0, action=HelpAll, help="show all options in full, and exit"
    )
    command.add_argument("--debug", action="store_true", help="show the traceback of a fault")
    return command


def _add_plan(commands: Commands) -> None:
    command = _add_command(
        commands,
        "plan",
        summary="show how a model would be cut, on which nodes, how fast, and why",
        epilog=PLAN_EXAMPLES,
    )
    _add_inputs(command, by_operator=True)
    meaning = (
        "text for people, wide one line for each; json and yaml have the status.plan that the "
        "operator would write; manifest is the ShardedModel to apply"
    )
    _add_output(command, ("text", "wide", "name", "json", "yaml", "manifest"), meaning)


def _add_explain(commands: Commands) -> None:
    command = _add_command(
        commands,
        "explain",
        summary="say why this layout, how much others lose, and how sure it is",
        epilog=EXPLAIN_EXAMPLES,
        more=_WORDS,
    )
    _add_inputs(command)
    meaning = "text for people, json and yaml for a program; wide and name as of plan"
    _add_output(command, ("text", "wide", "name", "json", "yaml"), meaning)


def _add_report(commands: Commands) -> None:
    command = _add_command(
        commands,
        "report",
        summary="draw the plan and all considered layouts as one HTML page",
        epilog=REPORT_EXAMPLES,
    )
    _add_inputs(command)
    command.set_defaults(output="html")


def _add_render(commands: Commands) -> None:
    command = _add_command(
        commands,
        "render",
        summary="print the Kubernetes objects of the plan",
        epilog=RENDER_EXAMPLES,
    )
    _add_inputs(command)
    command.add_argument(
        "--scripts", action="store_true", help="also the scripts that the pods mount"
    )
    _add_output(
        command,
        ("yaml", "json", "name"),
        "one YAML document per object, one JSON List, or a name for each",
    )


def _add_size(commands: Commands) -> None:
    command = _add_command(
        commands,
        "size",
        summary="say how many GPUs of each product carry a load, before you have them",
        epilog=SIZE_EXAMPLES,
    )
    command.add_argument("model", metavar="MODEL", help="id of a model, as Hugging Face writes it")
    _add_typed(command, layout=_DEGREES)
    _add_unknown(command)
    there = command.add_argument_group("GPUs")
    _add_named_gpus(there)
    _add_nodes_of(there)
    there.add_argument(
        "--settings", metavar="FILE", help="settings for all models, prices of GPUs among them"
    )
    _add_output(
        command,
        ("text", "wide", "name", "json", "yaml"),
        "tables; wide: one line for each product; name: for --gpus of plan, the cheapest "
        "first; json and yaml: also how they grow with the load",
    )


def _add_predict(commands: Commands) -> None:
    command = _add_command(
        commands,
        "predict",
        summary="predict memory and speed: of a layout of one model as plan shows it, or of many "
        "cases, one JSON object per line",
        epilog=PREDICT_EXAMPLES,
    )
    command.add_argument(
        "model", nargs="?", metavar="MODEL", help="id of a model, with --gpus, instead of cases"
    )
    _add_typed(command)
    _add_unknown(command)
    there = command.add_argument_group("GPUs")
    _add_named_gpus(there)
    _add_nodes_of(there)
    there.add_argument(
        "--settings", metavar="FILE", help="the administrator's settings for all models"
    )
    command.add_argument(
        "--input", metavar="FILE", help="cases (default: stdin); docs/predict.md has the fields"
    )
    command.add_argument(
        "--output",
        dest="predictions",
        metavar="FILE",
        help="predictions, one for each case (default: stdout)",
    )
    command.add_argument(
        "-o",
        dest="output",
        choices=("text", "json", "yaml"),
        default="text",
        action=OutputForm,
        help="of MODEL (default: text); cases have JSON",
    )


def _add_fetch(commands: Commands) -> None:
    command = _add_command(
        commands,
        "fetch",
        summary="read the config of a model from the Hugging Face hub, as a ConfigMap",
        epilog=FETCH_EXAMPLES,
    )
    command.add_argument("model", metavar="MODEL", help="id of the repository: org/name")
    command.add_argument(
        "--revision", metavar="COMMIT", help="40 hexadecimal digits (default: the newest commit)"
    )
    _add_output(command, ("yaml", "json"), "the ConfigMap; how to name it is said on stderr")


def _add_models(commands: Commands) -> None:
    command = _add_command(
        commands, "models", summary="list the models that are built in", epilog=MODELS_EXAMPLES
    )
    command.add_argument(
        "search",
        nargs="?",
        metavar="TEXT",
        default="",
        help="only ids that contain this, in any case",
    )
    command.add_argument("--search", dest="searched", metavar="TEXT", default="", help="the same")
    _add_output(
        command,
        ("text", "wide", "name", "json", "yaml"),
        "a table of ids and architectures, wide with commit and source; the ids; or one list",
    )


def _add_gpus(commands: Commands) -> None:
    command = _add_command(
        commands,
        "gpus",
        summary="list the GPUs that can be planned, by the id that a node label may state",
        epilog=GPUS_EXAMPLES,
    )
    command.add_argument(
        "search",
        nargs="?",
        metavar="TEXT",
        default="",
        help="only those with a name that contains this: an id, a label's value, what --gpus takes",
    )
    command.add_argument("--search", dest="searched", metavar="TEXT", default="", help="the same")
    _add_output(
        command,
        ("text", "wide", "name", "json", "yaml"),
        "a table, wide with vendor, GPUs per node and speed of the link; the ids; or one list",
    )


def _add_crd(commands: Commands) -> None:
    _add_command(
        commands,
        "crd",
        summary="print the CustomResourceDefinition of ShardedModel",
        epilog=CRD_EXAMPLES,
    )


def _add_version(commands: Commands) -> None:
    command = _add_command(commands, "version", summary="print the version")
    _add_output(
        command,
        ("text", "wide", "json", "yaml"),
        "the version alone; wide, json and yaml: also the engines and models that it knows",
    )


def _add_inputs(command: argparse.ArgumentParser, *, by_operator: bool = False) -> None:
    command.add_argument(
        "model",
        nargs="?",
        metavar="MODEL|NAME",
        help="id of a model, or a ShardedModel of the cluster; ids are org/name, as Hugging Face "
        "writes them; or -f",
    )
    _add_typed(command)
    wanted = command.add_argument_group("Inputs")
    wanted.add_argument(
        "-f",
        "--filename",
        action="append",
        metavar="FILE",
        help="file or folder with ShardedModels ('-': stdin); ConfigMaps that they refer to may be "
        "in it; may be repeated",
    )
    wanted.add_argument(
        "-n",
        "--namespace",
        metavar="NAME",
        default="",
        help="namespace of ShardedModels that name none (default: the context's)",
    )
    _add_unknown(wanted)
    wanted.add_argument(
        "--settings",
        metavar="FILE",
        help="the administrator's settings for all models; it is the text of the operator's "
        "ConfigMap",
    )
    _add_surroundings(command)
    add_connection(command, context=False, server=not by_operator)
    if by_operator:
        command.set_defaults(by_operator=False, api_server=None)
        _add_by_operator(wanted)


def _add_by_operator(wanted: ArgumentGroup) -> None:
    wanted.add_argument(
        "-s",
        "--server",
        nargs="?",
        action=PlannedByServer,
        metavar="URL",
        help="have the operator plan a copy of -f; needs no right to list nodes: the copy "
        "has mode PlanOnly, and is deleted again; with a URL: address of the API server",
    )


def _add_surroundings(command: argparse.ArgumentParser) -> None:
    there = command.add_argument_group("Cluster (the kubeconfig's current context, or)")
    one_of = there.add_mutually_exclusive_group()
    one_of.add_argument(
        "--nodes",
        action="append",
        default=[],
        metavar="FILE",
        help="output of 'kubectl get nodes,pods -A -o json'; or -o yaml, which takes several times "
        "as long; '-': stdin; pods hold their GPUs; may be repeated",
    )
    _add_named_gpus(one_of)
    one_of.add_argument("--context", metavar="NAME", help="a context of the kubeconfig")
    there.add_argument(
        "--without",
        action="append",
        default=[],
        choices=tuple(map(str, SERVED_KINDS)),
        metavar="KIND",
        help="what the cluster does not serve, beside what it is found to lack: ComputeDomain (no "
        "NVIDIA DRA driver joins nodes by NVLink) or ResourceClaimTemplate; may be repeated",
    )
    _add_nodes_of(there)


def _add_unknown(wanted: argparse._ActionsContainer) -> None:
    wanted.add_argument(
        "--config",
        metavar="FILE",
        help="config.json of the model, built in or not; or the folder of its checkpoint, or "
        "models--ORG--NAME of the cache of the Hugging Face hub",
    )
    add_offline(wanted)


def _add_named_gpus(there: ArgumentGroup) -> None:
    there.add_argument(
        "--gpus",
        action="extend",
        type=parts_of,
        default=[],
        metavar="GPUS",
        help="free GPUs, such as 8xH100,16xB200; without a number, such as H100,B200, as many as "
        "the load needs, at most 1,024 of each; 'shardwright gpus' lists them; may be repeated",
    )


def _add_nodes_of(there: ArgumentGroup) -> None:
    there.add_argument(
        "--nodes-of",
        type=count_of,
        metavar="COUNT",
        help="GPUs per node (with --gpus; default: as in the largest usual instance, at most 8)",
    )
    there.add_argument(
        "--network",
        type=gbps_of,
        metavar="GBPS",
        help="Gbit/s between nodes per GPU (with --gpus; default: assumed, little)",
    )


_TYPED: Final = (
    ("--input-tokens", "TOKENS", "mean length of a prompt (default: 2048)"),
    ("--output-tokens", "TOKENS", "mean length of an answer (default: 512)"),
    ("--concurrency", "REQUESTS", "requests in flight at once (default: 64)"),
    ("--rps", "RATE", "requests per second, instead of --concurrency"),
    ("--max-model-len", "TOKENS", "longest request, prompt and answer together"),
    ("--ttft", "TIME", "limit on the time to first token, such as 500ms"),
    ("--tpot", "TIME", "limit on the time per output token, such as 50ms"),
    ("--optimize-for", "AIM", "Balanced, Latency or Throughput (default: Balanced)"),
    ("--engine", "NAME", "vLLM or SGLang (default: vLLM); TensorRTLLM with -f"),
)
"""Options with one value that describe a model: name, placeholder, help."""


_DEGREES: Final = (
    (
        "--tp",
        "DEGREE",
        "tensor-parallel degree (default: planned); beside the plan is the best one",
    ),
    ("--pp", "DEGREE", "pipeline-parallel degree: stages (default: planned)"),
    ("--ep", "DEGREE", "expert-parallel degree: 1, or --tp times --dp (default: planned)"),
    ("--dp", "DEGREE", "attention's replicas beside one set of experts (default: planned)"),
)
"""Options with one value that pin the degrees of a layout: name, placeholder, help."""

_LAYOUT: Final = (
    *_DEGREES,
    ("--replicas", "COUNT", "replicas of the model (default: planned)"),
    ("--disaggregation", "MODE", "prefill and decode apart: Off, Auto or On (default: Off)"),
)
"""What else says which groups there are, of one kind of GPU."""


def _add_typed(
    command: argparse.ArgumentParser, *, layout: Sequence[tuple[str, str, str]] = _LAYOUT
) -> None:
    """Add the options for a model without a manifest; ``layout`` are those about its groups."""
    typed = command.add_argument_group(
        "Model and load (kubectl explain shardedmodel.spec has more)"
    )
    for name, placeholder, text in (*_TYPED, *layout):
        typed.add_argument(name, metavar=placeholder, help=text)


def _add_output(command: argparse.ArgumentParser, formats: tuple[str, ...], meaning: str) -> None:
    about = f"{meaning} (default: {formats[0]})"
    command.add_argument(
        "-o", "--output", choices=formats, default=formats[0], action=OutputForm, help=about
    )
