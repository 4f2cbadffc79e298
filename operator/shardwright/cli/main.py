"""The entry point: from typed words to an exit code. All faults end here."""

import atexit
import difflib
import gc
import os
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from shardwright import __version__
from shardwright.cli.asked_cluster import asked_cluster, without_cluster
from shardwright.cli.commands import UsageExit, build_parser, program_name
from shardwright.cli.exits import BROKEN_PIPE, INTERRUPTED, Exit, UnreachableError
from shardwright.cli.output import print_error, print_text
from shardwright.cli.typed import refuse_misuse
from shardwright.errors import InputError, Problem

YOUNG_OBJECTS: Final = 200_000
"""Objects allocated before the first garbage collection. Basis: measured, loading the planner and
planning makes 98,000, none of them garbage; collecting at each 700, as Python does, took 5 to 26%
of the CPU of a plan, by run.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command, and return its exit code."""
    try:
        code = _answer(argv)
        sys.stdout.flush()
    except BrokenPipeError:
        return _leave_quietly()
    return code


def _answer(argv: Sequence[str] | None) -> int:
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
    atexit.register(gc.freeze)  # or the interpreter collects all of it as it ends
    parser = build_parser(program_name(sys.argv[0]))
    if "_ARGCOMPLETE" in os.environ:  # a shell asks for completions
        from shardwright.cli.completion import complete_for_shell  # noqa: PLC0415 - only then

        complete_for_shell(parser)
    words = sys.argv[1:] if argv is None else argv
    if (mistyped := _mistyped_command(words)) is not None:
        return _report_input(InputError([mistyped]), _typed_form(words))
    try:
        arguments = parser.parse_args(words)
    except UsageExit as exit_:
        _print_as_document((exit_.problem,), _typed_form(words))
        raise
    arguments.words = [parser.prog, *words]
    if arguments.command is None:
        parser.print_help()
        return Exit.PLAN
    return _run(arguments)


def _run(arguments: Namespace) -> int:
    try:
        refuse_misuse(arguments)
        arguments.target = asked_cluster(arguments)
        code = COMMANDS[arguments.command](arguments)
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        return INTERRUPTED
    except InputError as error:
        return _report_input(error, _form_of(arguments))
    except UnreachableError as error:
        return _report_unreachable(error, _form_of(arguments))
    except Exception as error:  # noqa: BLE001 - the last place that can say what happened
        return _report_other(error, arguments)
    return code


def _no_client(package: str, without: str) -> Problem:
    return Problem(
        code="ClientMissing",
        what=f"reading a cluster needs the package {package}, which is not installed",
        remedy=", or ".join(filter(None, ("install 'shardwright[cluster]'", without))),
    )


def _form_of(arguments: Namespace) -> str:
    # Output without -o is for people, even if it is YAML.
    form = getattr(arguments, "asked_output", "")
    return form if form in {"json", "yaml"} else ""


def _typed_form(words: Sequence[str]) -> str:
    """Return the document form in words that no command accepts, empty for a person."""
    typed = " ".join(words)
    return next(
        (
            form
            for form in ("json", "yaml")
            if re.search(rf"(^| )(-o ?=?|--output[ =]){form}( |$)", typed)
        ),
        "",
    )


def _mistyped_command(words: Sequence[str]) -> Problem | None:
    word = words[0] if words else ""
    if word.startswith("-") or word in COMMANDS:
        return None
    near = difflib.get_close_matches(word, COMMANDS, n=2)
    remedy = f"did you mean {' or '.join(near)}?"
    return (
        Problem(code="NotAllowed", what=f"{word!r:.40} is not a command", remedy=remedy)
        if near
        else None
    )


def _report_input(error: InputError, form: str = "") -> int:
    _report(error.problems, form)
    return Exit.BAD_INPUT


def _report_unreachable(error: UnreachableError, form: str) -> int:
    _report(error.problems, form)
    return Exit.FAULT


def _report(problems: Sequence[Problem], form: str) -> None:
    """Print faults on stderr and, for a program, as the document that it expects."""
    for problem in problems:
        print_error(problem.sentence(), problem.code)
    _print_as_document(problems, form)


def _print_as_document(problems: Sequence[Problem], form: str) -> None:
    if form:
        from shardwright.cli.output import print_problems  # noqa: PLC0415 - only then

        print_problems(problems, form)
        sys.stdout.flush()


def _report_other(error: Exception, arguments: Namespace) -> int:
    if (
        isinstance(error, ModuleNotFoundError)
        and error.name
        and not error.name.startswith("shardwright")
    ):
        problem = _no_client(error.name, without_cluster(arguments))
        return _report_unreachable(UnreachableError(problem), _form_of(arguments))
    return _report_fault(error, show_traceback=arguments.debug)


def _report_fault(error: Exception, *, show_traceback: bool) -> int:
    if show_traceback:
        import traceback  # noqa: PLC0415 - only for a fault

        print_text("".join(traceback.format_exception(error)).removesuffix("\n"), sys.stderr)
    print_error(
        f"{type(error).__name__}: {error}; this is an internal error: please report it with "
        "the output of --debug"
    )
    return Exit.FAULT


def _leave_quietly() -> int:
    """Redirect stdout, so that not even the interpreter at its end writes into the broken pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return BROKEN_PIPE


def _plan(arguments: Namespace) -> int:
    if arguments.by_operator:
        from shardwright.cli.operator_plan import plan_by_operator  # noqa: PLC0415 - see below

        return plan_by_operator(arguments)
    from shardwright.cli.plan import plan  # noqa: PLC0415 - the planner is loaded by the commands that plan

    return plan(arguments)


def _explain(arguments: Namespace) -> int:
    from shardwright.cli.plan import explain  # noqa: PLC0415 - see _plan

    return explain(arguments)


def _draw(arguments: Namespace) -> int:
    from shardwright.cli.report_page import report  # noqa: PLC0415 - see _plan

    return report(arguments)


def _render(arguments: Namespace) -> int:
    from shardwright.cli.plan import render  # noqa: PLC0415 - see _plan

    return render(arguments)


def _size(arguments: Namespace) -> int:
    from shardwright.cli.size import print_size  # noqa: PLC0415 - see _plan

    return print_size(arguments)


def _predict(arguments: Namespace) -> int:
    if arguments.model is not None:
        from shardwright.cli.plan import predicted  # noqa: PLC0415 - see _plan

        return predicted(arguments)
    from shardwright.cli.predict import predict  # noqa: PLC0415 - see _plan

    return predict(arguments)


def _fetch(arguments: Namespace) -> int:
    from shardwright.cli.checkpoints import fetch_config_map  # noqa: PLC0415 - see _plan

    return fetch_config_map(arguments)


def _doctor(arguments: Namespace) -> int:
    from shardwright.cli.doctor import doctor  # noqa: PLC0415 - see _plan

    return doctor(arguments)


def _status(arguments: Namespace) -> int:
    from shardwright.cli.status import status  # noqa: PLC0415 - see _plan

    return status(arguments)


def _diff(arguments: Namespace) -> int:
    from shardwright.cli.diff import diff  # noqa: PLC0415 - see _plan

    return diff(arguments)


def _import(arguments: Namespace) -> int:
    from shardwright.cli.importing import import_models  # noqa: PLC0415 - see _plan

    return import_models(arguments)


def _completion(arguments: Namespace) -> int:
    from shardwright.cli.completion import print_script  # noqa: PLC0415 - see _plan

    return print_script(arguments)


def _rollout(arguments: Namespace) -> int:
    from shardwright.cli.rollout import rollout  # noqa: PLC0415 - see _plan

    return rollout(arguments)


def _models(arguments: Namespace) -> int:
    from shardwright.cli.built_in import list_models  # noqa: PLC0415 - see _plan

    list_models(arguments)
    return Exit.PLAN


def _gpus(arguments: Namespace) -> int:
    from shardwright.cli.built_in import list_gpus  # noqa: PLC0415 - see _plan

    list_gpus(arguments)
    return Exit.PLAN


def _crd(_: Namespace) -> int:
    from shardwright.api.schema import crd_yaml  # noqa: PLC0415 - see _plan

    print_text(crd_yaml().removesuffix("\n"))
    return Exit.PLAN


def _version(arguments: Namespace) -> int:
    if arguments.output == "text":
        print_text(f"shardwright {__version__}")
        return Exit.PLAN
    from shardwright.cli.built_in import print_version  # noqa: PLC0415 - see _plan

    print_version(arguments)
    return Exit.PLAN


COMMANDS: Final[Mapping[str, Callable[[Namespace], int]]] = MappingProxyType(
    {
        "plan": _plan,
        "explain": _explain,
        "report": _draw,
        "render": _render,
        "size": _size,
        "status": _status,
        "diff": _diff,
        "import": _import,
        "predict": _predict,
        "fetch": _fetch,
        "doctor": _doctor,
        "rollout": _rollout,
        "models": _models,
        "gpus": _gpus,
        "crd": _crd,
        "completion": _completion,
        "version": _version,
    }
)

if __name__ == "__main__":
    sys.exit(main())
