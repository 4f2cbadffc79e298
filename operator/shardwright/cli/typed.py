"""A ShardedModel typed as options: ``plan MODEL --input-tokens 2048 --rps 5 --ttft 2s``."""

from __future__ import annotations

import os
import re
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from shardwright.api.names import API_VERSION, KIND
from shardwright.cli.numbers import duration_of
from shardwright.errors import InputError, Problem
from shardwright.hardware.slices import named_profile

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
    *OF_LAYOUT,
)
"""What can be typed; ``arguments`` has the help of each."""


BETWEEN_FIELDS: Final = frozenset({"ArrivalTwice", "RequestsExceedModelLength", "ExpertNotTensor"})
"""Rules about several fields, each of which has an option."""


def typed_manifest(arguments: Namespace) -> dict[str, Any]:
    """Return the ShardedModel that the options describe, as YAML would hold it."""
    spec: dict[str, Any] = {"model": {"id": arguments.model}}
    _write(spec, OPTIONS, arguments)
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
        if option.read is not str and (text := _typed(option, arguments)) is not None
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
