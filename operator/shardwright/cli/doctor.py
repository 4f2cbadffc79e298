"""The command ``doctor``: read a cluster, say the faults of the installation, and the commands
against them.

It fixes nothing itself, and writes only if it is to measure NetworkPolicies.
"""

import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from shardwright.cli.arguments import program_name
from shardwright.cli.clusters import Target
from shardwright.cli.diagnosis import examine
from shardwright.cli.exits import Exit
from shardwright.cli.findings import Examined, Finding, Result
from shardwright.cli.output import print_lines, width_of_output
from shardwright.cli.outputs import print_document
from shardwright.cli.prescriptions import WORDS, command, sentence
from shardwright.cli.taking_stock import read_chart
from shardwright.reporting.lines import Line, Role, Span, line, paragraph

_UNREAD: Final = "not looked at: you may not read what it takes"
_SKIPPED: Final = "not measured: --network-policies does, with a short-lived pod"
_SIGNS: Final = {
    Result.FINE: "ok",
    Result.NOTED: "note",
    Result.WRONG: "WRONG",
    Result.UNREAD: "?",
    Result.SKIPPED: "-",
}
_ROLES: Final = {
    Result.FINE: Role.HEADLINE,
    Result.NOTED: Role.WARNING,
    Result.WRONG: Role.REFUSAL,
}


def doctor(arguments: Namespace) -> int:
    """Print the findings; 1 if something is wrong.

    Raises:
        InputError: something is said of pods that nobody has asked for.
        UnreachableError: no answer, or no credentials.
    """
    cluster: Target = arguments.target
    chart = cluster.ask(lambda client: read_chart(client, arguments))
    examined = examine(chart, datetime.now(UTC))
    if arguments.output == "text":
        print_lines(lines_of(examined, width_of_output()))
    else:
        print_document("Diagnosis", document(examined), arguments.output)
    return (
        Exit.SOMETHING_WRONG
        if any(one.result is Result.WRONG for one in examined)
        else Exit.PLAN
    )


def lines_of(examined: Sequence[Examined], width: int) -> Iterator[Line]:
    """Yield each check with its findings and the commands against them, for a person."""
    told = {Result.UNREAD: f" ({_UNREAD})", Result.SKIPPED: f" ({_SKIPPED})"}
    for one in examined:
        sign = Span(f"{_SIGNS[one.result]:<6}", _ROLES.get(one.result, Role.PLAIN))
        yield from paragraph(
            f"{WORDS[one.check]}{told.get(one.result, '')}", width=width, first=[sign]
        )
        for finding in one.findings:
            result = Result.WRONG if finding.wrong else Result.NOTED
            # The line above says it already of a finding of its own kind.
            told_apart = "" if result is one.result else f"{_SIGNS[result]}: "
            yield from paragraph(
                sentence(finding),
                width=width,
                first=[Span(f"      {told_apart}", _ROLES[result])],
            )
            yield line(
                Span("        $ ", Role.FAINT),
                Span(command(finding, _program()), Role.COMMAND),
            )


def _program() -> str:
    return program_name(sys.argv[0])


def document(examined: Sequence[Examined]) -> dict[str, Any]:
    """Return the findings as a document for programs."""
    return {"checks": [_as_json(one) for one in examined]}


def _as_json(one: Examined) -> dict[str, Any]:
    return {
        "check": one.check.value,
        "result": one.result.value,
        "findings": [_finding_as_json(finding) for finding in one.findings],
    }


def _finding_as_json(finding: Finding) -> dict[str, Any]:
    return {
        "reason": finding.ailment.value,
        "wrong": finding.wrong,
        "namespace": finding.namespace or None,
        "objects": list(finding.objects),
        "message": sentence(finding),
        "command": command(finding, _program()),
    }
