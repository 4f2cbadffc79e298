"""A ShardedModel typed as options: ``plan MODEL --input-tokens 2048 --rps 5 --ttft 2s``.

Misuse that shows without a command's modules: words that do not go together, missing files, a
malformed KIND/NAME, number or time.

It is reported before a cluster is asked. The content of files, and whether a number suits its
field, is checked later, when the command has been loaded.

KIND/NAME, as typed: an object of the cluster to import.
"""

from __future__ import annotations

import os
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from math import isfinite
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from shardwright import __version__
from shardwright.api.group_version import API_VERSION, KIND
from shardwright.cli.inputs import missing_files
from shardwright.cli.quantities import duration_of
from shardwright.errors import InputError, Problem
from shardwright.hardware.suitability import named_profile

if TYPE_CHECKING:
    from shardwright.api.resource import ShardedModel


_MILLISECONDS: Final = {"ms": 1, "s": 1000, "m": 60_000}
_WHOLE: Final = re.compile(r"-?[0-9]{1,15}", re.ASCII)  # a JSON number
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)
"""A name of an object."""

_LONGEST_NAME: Final = 50  # characters: names of pods are made from it


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOption:
    """An option of the command line, and the field it stands for."""

    flag: str
    field: tuple[str, ...]
    read: Callable[[str], object]
    example: str = ""

    @property
    def attribute(self) -> str:
        """Return the option's name among the parsed arguments."""
        return self.flag.removeprefix("--").replace("-", "_")


def milliseconds(text: str) -> object:
    """Return a duration in whole milliseconds, or the text itself, for the field's own check to
    refuse.

    >>> (milliseconds("2s"), milliseconds("50ms"), milliseconds("0.5s"), milliseconds("fast"))
    (2000, 50, 500, 'fast')
    """
    found = duration_of(text.strip(), _MILLISECONDS)
    return text if found is None else round(found)


def whole(text: str) -> object:
    """Return a whole number, with or without commas, or the text itself.

    >>> whole("2,048"), whole("2k")
    (2048, '2k')
    >>> whole("-1")
    -1
    """
    plain = text.replace(",", "")
    return int(plain) if _WHOLE.fullmatch(plain) else text


def number(text: str) -> object:
    """Return a finite number, or the text itself.

    >>> number("0.5"), number("nan"), number("x")
    (0.5, 'nan', 'x')
    """
    try:
        read = float(text)
    except ValueError:
        return text
    return read if isfinite(read) else text


def engine_named(text: str) -> str:
    """Return the name of an engine as a resource has it, however its letters are typed.

    >>> engine_named("sglang"), engine_named("other")
    ('SGLang', 'other')
    """
    from shardwright.engines.registry import ENGINES  # noqa: PLC0415 - only where somebody names one

    return next((name for name in ENGINES if name.lower() == text.lower()), text)


_TEXTS: Final = (str, str.capitalize, engine_named)
"""What reads a text, as others read numbers."""

OF_LAYOUT: Final = (
    CommandOption(flag="--tp", field=("parallelism", "tensor"), read=whole, example="4"),
    CommandOption(flag="--pp", field=("parallelism", "pipeline"), read=whole, example="2"),
    CommandOption(flag="--ep", field=("parallelism", "expert"), read=whole, example="8"),
    CommandOption(
        flag="--dp", field=("parallelism", "dataParallelAttention"), read=whole, example="8"
    ),
    CommandOption(flag="--replicas", field=("replicas",), read=whole, example="2"),
)
"""What pins a layout: beside a file they take the place of what it pins."""

OPTIONS: Final = (
    CommandOption(
        flag="--input-tokens", field=("workload", "inputTokens"), read=whole, example="2048"
    ),
    CommandOption(
        flag="--output-tokens", field=("workload", "outputTokens"), read=whole, example="512"
    ),
    CommandOption(
        flag="--concurrency", field=("workload", "concurrency"), read=whole, example="64"
    ),
    CommandOption(
        flag="--rps", field=("workload", "requestsPerSecond"), read=number, example="0.5"
    ),
    CommandOption(
        flag="--max-model-len", field=("engine", "maxModelLen"), read=whole, example="8192"
    ),
    CommandOption(
        flag="--ttft",
        field=("objective", "ttftMilliseconds"),
        read=milliseconds,
        example="2s or 500ms",
    ),
    CommandOption(
        flag="--tpot", field=("objective", "tpotMilliseconds"), read=milliseconds, example="50ms"
    ),
    CommandOption(flag="--optimize-for", field=("objective", "optimizeFor"), read=str),
    CommandOption(flag="--disaggregation", field=("disaggregation", "mode"), read=str.capitalize),
    CommandOption(flag="--engine", field=("engine", "name"), read=engine_named),
    *OF_LAYOUT,
)
"""What can be typed; ``commands`` has the help of each."""


BETWEEN_FIELDS: Final = frozenset({"ArrivalTwice", "RequestsExceedModelLength", "ExpertNotTensor"})
"""Rules about several fields, each of which has an option."""


def typed_manifest(arguments: Namespace) -> dict[str, Any]:
    """Return the ShardedModel that the options describe, as YAML would hold it."""
    spec: dict[str, Any] = {"model": {"id": arguments.model}}
    _write(spec, OPTIONS, arguments)
    if spec.get("disaggregation", {}).get("mode", "Off") != "Off":
        # Nothing else joins what is apart.
        spec["routing"] = {"mode": "Router"}
    if profile := _mig_profile(arguments):
        spec["placement"] = {"migProfile": profile}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": resource_name(arguments.model)},
        "spec": spec,
    }


def with_typed_layout(resource: ShardedModel, arguments: Namespace) -> ShardedModel:
    """Return a resource with the layout that the options pin in place of its own.

    Raises:
        InputError: with a problem for each option that its field does not take.
    """
    if not any(_typed(option, arguments) is not None for option in OF_LAYOUT):
        return resource
    manifest = resource.model_dump(mode="json", by_alias=True, exclude_unset=True)
    _write(manifest["spec"], OF_LAYOUT, arguments)
    return read_typed(manifest)


def _write(spec: dict[str, Any], options: Iterable[CommandOption], arguments: Namespace) -> None:
    for option in options:
        text = _typed(option, arguments)
        if text is not None:
            *parents, name = option.field
            place = spec
            for parent in parents:
                place = place.setdefault(parent, {})
            place[name] = option.read(text)


def _typed(option: CommandOption, arguments: Namespace) -> str | None:
    text: str | None = getattr(arguments, option.attribute, None)
    return text


def _mig_profile(arguments: Namespace) -> str:
    found = {named_profile(name) for name in getattr(arguments, "gpus", None) or ()}
    return found.pop() if len(found) == 1 else ""


def read_typed(manifest: Mapping[str, Any]) -> ShardedModel:
    """Return the resource of a typed manifest.

    Raises:
        InputError: with a problem for each option that its field does not take.
    """
    from shardwright.api.resource import parse_manifest  # noqa: PLC0415 - what is misused is said before it is loaded

    try:
        return parse_manifest(manifest)
    except InputError as error:
        raise InputError(map(of_option, error.problems)) from None


def mistyped_options(arguments: Namespace) -> tuple[Problem, ...]:
    """Return the faults of a typed model with an option that is no number or time; only then are
    the checks of fields loaded.
    """
    read = (
        option.read(text)
        for option in OPTIONS
        if option.read not in _TEXTS and (text := _typed(option, arguments)) is not None
    )
    if not any(isinstance(value, str) for value in read):
        return ()
    try:
        read_typed(typed_manifest(arguments))
    except InputError as error:
        return error.problems
    raise AssertionError("a text is taken for a number")


def of_option(problem: Problem) -> Problem:
    """Return a problem of a field as one of the option typed for it."""
    if problem.path == "spec.model.id":
        return replace(problem, path="MODEL")
    option = next(
        (option for option in OPTIONS if ".".join(("spec", *option.field)) == problem.path), None
    )
    if option is None:
        return problem
    if problem.code in BETWEEN_FIELDS:
        return replace(problem, path=option.flag, what=_of_flags(problem.what))
    if problem.code != "WrongType" or not option.example:
        return replace(problem, path=option.flag)
    limit = "must be a time" if option.read is milliseconds else problem.limit
    return replace(
        problem, path=option.flag, limit=limit, remedy=f"write for example {option.example}"
    )


def field_as_typed(path: str) -> str:
    """Return the option that is typed for a field; the field, if there is none.

    >>> field_as_typed("spec.objective.tpotMilliseconds"), field_as_typed("spec.parallelism")
    ('--tpot', 'spec.parallelism')
    """
    return next(
        (option.flag for option in OPTIONS if ".".join(("spec", *option.field)) == path), path
    )


def _of_flags(text: str) -> str:
    """Return a sentence about fields as one about their options.

    >>> _of_flags("requestsPerSecond and concurrency must not both be set")
    '--rps and --concurrency must not both be set'
    """
    flags = {option.field[-1]: option.flag for option in OPTIONS}
    return re.sub(r"\b[a-zA-Z]+\b", lambda match: flags.get(match[0], match[0]), text)


def typed_options(arguments: Namespace) -> tuple[str, ...]:
    """Return the options for a typed model that were given."""
    return tuple(option.flag for option in OPTIONS if _typed(option, arguments) is not None)


def options_beside_files(arguments: Namespace) -> tuple[str, ...]:
    """Return the options that were given and have no meaning beside a manifest."""
    of_layout = {option.flag for option in OF_LAYOUT}
    return tuple(flag for flag in typed_options(arguments) if flag not in of_layout)


def resource_name(model: str) -> str:
    """Return a resource name for a model id.

    >>> resource_name("meta-llama/Llama-3.1-70B-Instruct"), resource_name("_/_")
    ('llama-3-1-70b-instruct', 'model')
    """
    words = re.findall(r"[a-z0-9]+", model.rpartition("/")[2].lower(), re.ASCII)
    name = "-".join(words)[:_LONGEST_NAME].strip("-")
    return name if name[:1].isalpha() else f"model-{name}".strip("-")


def names_live_model(arguments: Namespace) -> bool:
    """Return whether MODEL names a ShardedModel: ids of the hub are ``org/name`` with a load."""
    model = arguments.model
    there = not (
        arguments.nodes or arguments.gpus or arguments.filename or typed_options(arguments)
    )
    return model is not None and there and _NAME.fullmatch(model) is not None and not is_file(model)


def is_file(model: str) -> bool:
    """Return whether a name is that of a file, or looks like one."""
    return os.path.isfile(model) or model.endswith((".yaml", ".yml", ".json"))  # noqa: PTH113 - a name too long is no file


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedKind:
    """A kind that can be named in a cluster, its versions newest first."""

    kind: str
    brought_by: str
    group: str
    plural: str
    versions: tuple[str, ...]


_DEPLOYMENT: Final = ImportedKind(
    kind="Deployment", brought_by="Kubernetes", group="apps", plural="deployments", versions=("v1",)
)
_LEADER_WORKER_SET: Final = ImportedKind(
    kind="LeaderWorkerSet",
    brought_by="LeaderWorkerSet",
    group="leaderworkerset.x-k8s.io",
    plural="leaderworkersets",
    versions=("v1",),
)
_LLM_INFERENCE_SERVICE: Final = ImportedKind(
    kind="LLMInferenceService",
    brought_by="KServe",
    group="serving.kserve.io",
    plural="llminferenceservices",
    versions=("v1alpha2", "v1alpha1"),
)
_INFERENCE_SERVICE: Final = ImportedKind(
    kind="InferenceService",
    brought_by="KServe",
    group="serving.kserve.io",
    plural="inferenceservices",
    versions=("v1beta1",),
)
_WORKSPACE: Final = ImportedKind(
    kind="Workspace",
    brought_by="KAITO",
    group="kaito.sh",
    plural="workspaces",
    versions=("v1beta1", "v1alpha1"),
)
_INFERENCE_SET: Final = ImportedKind(
    kind="InferenceSet",
    brought_by="KAITO",
    group="kaito.sh",
    plural="inferencesets",
    versions=("v1beta1", "v1alpha1"),
)
_MULTI_ROLE_INFERENCE: Final = ImportedKind(
    kind="MultiRoleInference",
    brought_by="KAITO",
    group="kaito.sh",
    plural="multiroleinferences",
    versions=("v1alpha1",),
)
_DYNAMO_GRAPH_DEPLOYMENT: Final = ImportedKind(
    kind="DynamoGraphDeployment",
    brought_by="Dynamo",
    group="nvidia.com",
    plural="dynamographdeployments",
    versions=("v1beta1", "v1alpha1"),
)
_STORM_SERVICE: Final = ImportedKind(
    kind="StormService",
    brought_by="AIBrix",
    group="orchestration.aibrix.ai",
    plural="stormservices",
    versions=("v1alpha1",),
)
_RAY_CLUSTER_FLEET: Final = ImportedKind(
    kind="RayClusterFleet",
    brought_by="AIBrix",
    group="orchestration.aibrix.ai",
    plural="rayclusterfleets",
    versions=("v1alpha1",),
)

KINDS: Final = {
    "deployment": _DEPLOYMENT,
    "deploy": _DEPLOYMENT,
    "leaderworkerset": _LEADER_WORKER_SET,
    "lws": _LEADER_WORKER_SET,
    "llminferenceservice": _LLM_INFERENCE_SERVICE,
    "llmisvc": _LLM_INFERENCE_SERVICE,
    "inferenceservice": _INFERENCE_SERVICE,
    "isvc": _INFERENCE_SERVICE,
    "workspace": _WORKSPACE,
    "inferenceset": _INFERENCE_SET,
    "multiroleinference": _MULTI_ROLE_INFERENCE,
    "dynamographdeployment": _DYNAMO_GRAPH_DEPLOYMENT,
    "dgd": _DYNAMO_GRAPH_DEPLOYMENT,
    "stormservice": _STORM_SERVICE,
    "rayclusterfleet": _RAY_CLUSTER_FLEET,
}
"""The kinds that can be named, as typed."""


def kind_and_name(word: str) -> tuple[str, str]:
    """Return the key of ``KINDS`` and the name that KIND/NAME stands for.

    Raises:
        InputError: it is not of that form, or of no such kind.

    >>> kind_and_name("LWS/llama"), kind_and_name("deployments/llama")
    (('lws', 'llama'), ('deployment', 'llama'))
    """
    kind, _, name = word.partition("/")
    if (kind.lower().removesuffix("s") not in KINDS and kind.lower() not in KINDS) or not name:
        what = f"{word!r:.80} is not KIND/NAME"
        raise InputError(
            [
                Problem(
                    code="NotAllowed",
                    path="KIND/NAME",
                    what=what,
                    remedy=f"kinds are {', '.join(KINDS)}",
                )
            ]
        )
    return (kind.lower() if kind.lower() in KINDS else kind.lower().removesuffix("s")), name


def refuse_misuse(arguments: Namespace) -> None:
    """Refuse words of a command that do not go together or have no meaning.

    Raises:
        InputError: with a problem for each.
    """
    of_command = (
        _of_server
        if getattr(arguments, "by_operator", False)
        else _OF_COMMAND.get(arguments.command)
    )
    misused = tuple(of_command(arguments)) if of_command else ()
    # Files last: of words that do not go together it is unclear which are meant.
    if problems := misused or tuple(_of_files(arguments)):
        raise InputError(problems)


def _of_files(arguments: Namespace) -> Iterator[Problem]:
    given = (getattr(arguments, name, None) for name in ("settings", "config"))
    many = (getattr(arguments, name, None) or () for name in ("filename", "nodes"))
    yield from missing_files((*chain(*many), *filter(None, given)))


def _of_model(arguments: Namespace) -> Iterator[Problem]:
    model = arguments.model
    files = arguments.filename or ()
    if model is None and not files:
        yield Problem(
            code="NoShardedModel",
            what="no model is named",
            remedy="give its id, or a manifest with -f FILE",
        )
    elif model is None:
        yield from map(_of_files_only, options_beside_files(arguments))
        yield from _manifest_of_files(arguments)
    elif files:
        yield Problem(
            code="NotTogether",
            path="MODEL",
            what=f"the model {model} is named beside -f",
            remedy="give one of the two",
        )
    elif is_file(model):
        yield Problem(
            code="NotAllowed",
            path="MODEL",
            what=f"{model} is a file, not the id of a model",
            remedy=f"write -f {model}",
        )
    else:
        yield from mistyped_options(arguments)
    yield from _of_gpus(arguments)


def _of_predict(arguments: Namespace) -> Iterator[Problem]:
    what, remedy = "describes a model that is not named", "name it, or give cases with --input"
    if arguments.model is None:
        beside = {"--gpus": arguments.gpus, "-o": arguments.output != "text"}
        given = (*typed_options(arguments), *(flag for flag, told in beside.items() if told))
        for flag in given:
            yield Problem(code="NotTogether", path=flag, what=what, remedy=remedy)
        return
    for flag, file in (("--input", arguments.input), ("--output", arguments.predictions)):
        if file is not None:
            said = "is for cases, and a model is named"
            yield Problem(
                code="NotTogether", path=flag, what=said, remedy="leave one of the two out"
            )
    if not arguments.gpus:
        yield Problem(
            code="NotTogether",
            path="MODEL",
            what="no GPUs are named",
            remedy="name them, for example with --gpus 16xH100",
        )
    yield from mistyped_options(arguments)


def _of_search(arguments: Namespace) -> Iterator[Problem]:
    if arguments.search and arguments.searched:
        yield Problem(
            code="NotAllowed",
            path="--search",
            what=f"{arguments.search!r:.80} is searched for beside it",
            remedy="give one of the two",
        )


def _of_report(arguments: Namespace) -> Iterator[Problem]:
    if sys.stdout.isatty():
        yield Problem(
            code="NotAllowed",
            what="the page is HTML for a browser, not for a terminal",
            remedy="redirect it: > plan.html",
        )
    yield from _of_model(arguments)


def _of_files_only(flag: str) -> Problem:
    what, limit = (
        "describes a model that is named on the command line",
        "and the manifest of -f says it itself",
    )
    return Problem(
        code="NotTogether", path=flag, what=what, limit=limit, remedy="write it into the manifest"
    )


def _manifest_of_files(arguments: Namespace) -> tuple[Problem, ...]:
    if arguments.output != "manifest":
        return ()
    what = "is for a model that is named on the command line"
    return (
        Problem(
            code="NotTogether",
            path="-o manifest",
            what=what,
            remedy="the manifest of -f is there already",
        ),
    )


def _of_gpus(arguments: Namespace) -> Iterator[Problem]:
    given = {"--nodes-of": arguments.nodes_of, "--network": arguments.network}
    what, remedy = (
        "describes GPUs that are not named",
        "name them, for example with --gpus 16xH100",
    )
    if not arguments.gpus:
        yield from (
            Problem(code="NotTogether", path=flag, what=what, remedy=remedy)
            for flag, value in given.items()
            if value is not None
        )


def _of_diff(arguments: Namespace) -> Iterator[Problem]:
    if bool(arguments.name) == bool(arguments.filename):
        what = (
            "a name and a file are given"
            if arguments.name
            else "neither a name nor a file is given"
        )
        yield Problem(
            code="NotTogether",
            path="NAME",
            what=what,
            remedy="give one of them: diff NAME, or diff -f FILE",
        )
    version = arguments.operator_version
    if version and version.removeprefix("v") != __version__:
        what, limit = (f"this program renders as release {__version__} does", "and as no other")
        remedy = (
            f"install the command line of {version} beside it, for example into a virtual "
            "environment, and ask that"
        )
        yield Problem(
            code="NotAllowed", path="--operator-version", what=what, limit=limit, remedy=remedy
        )


def _of_status(arguments: Namespace) -> Iterator[Problem]:
    if arguments.name and arguments.all_namespaces:
        what = "a name is given beside -A"
        remedy = "name its namespace with -n"
        yield Problem(code="NotTogether", path="NAME", what=what, remedy=remedy)
    if arguments.watch and arguments.output not in {"text", "wide"}:
        what, remedy = (
            "shows text that changes",
            "leave -o out, or ask again and again without --watch",
        )
        yield Problem(code="NotTogether", path="--watch", what=what, remedy=remedy)


def _of_rollout(arguments: Namespace) -> Iterator[Problem]:
    if arguments.to_revision is not None and arguments.action != "undo":
        what, remedy = (f"{arguments.action} takes no revision", "leave it out, or write undo")
        yield Problem(code="NotTogether", path="--to-revision", what=what, remedy=remedy)
    if arguments.output != "text" and arguments.action != "history":
        what, remedy = (f"{arguments.action} prints no document", "leave -o out, or write history")
        yield Problem(code="NotTogether", path="--output", what=what, remedy=remedy)


def _of_doctor(arguments: Namespace) -> Iterator[Problem]:
    given = {"--trial-namespace": arguments.trial_namespace, "--image": arguments.image}
    what = "is of the pod that measures"
    remedy = "give --network-policies, too"
    if not arguments.network_policies:
        yield from (
            Problem(code="NotTogether", path=flag, what=what, remedy=remedy)
            for flag, said in given.items()
            if said
        )


def _of_server(arguments: Namespace) -> Iterator[Problem]:
    if not arguments.filename:
        what, remedy = (
            "is for manifests",
            "name one with -f; 'plan NAME' shows the plan of one that is in the cluster",
        )
        yield Problem(code="NotTogether", path="--server", what=what, remedy=remedy)
    given = {
        "MODEL": arguments.model,
        "--nodes": arguments.nodes,
        "--gpus": arguments.gpus,
        "--config": arguments.config,
        "--offline": arguments.offline,
        "--settings": arguments.settings,
        "-o manifest": arguments.output == "manifest",
        **dict.fromkeys(typed_options(arguments), True),
    }
    for path in (name for name, value in given.items() if value):
        what, limit = ("is for a plan that is made here", "and with --server the operator makes it")
        yield Problem(
            code="NotTogether", path=path, what=what, limit=limit, remedy="leave one of the two out"
        )


def _of_import(arguments: Namespace) -> Iterator[Problem]:
    if bool(arguments.filename) == bool(arguments.name):
        what, remedy = (
            "give files, or objects of the cluster",
            "import -f FILE, or import deployment/NAME",
        )
        yield Problem(code="NotTogether", path="KIND/NAME", what=what, remedy=remedy)
    for word in arguments.name:
        try:
            kind_and_name(word)
        except InputError as error:
            yield from error.problems


_OF_COMMAND: Final[Mapping[str, Callable[[Namespace], Iterator[Problem]]]] = MappingProxyType(
    {
        "plan": _of_model,
        "explain": _of_model,
        "report": _of_report,
        "render": _of_model,
        "diff": _of_diff,
        "status": _of_status,
        "rollout": _of_rollout,
        "doctor": _of_doctor,
        "import": _of_import,
        "predict": _of_predict,
        "models": _of_search,
        "gpus": _of_search,
    }
)
