"""The command ``doctor``: reads a cluster, prints the installation's faults and a command for each.

It fixes nothing itself, and writes only to measure NetworkPolicies.
"""

import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import Any, Final

from shardwright.cli.clusters import Target
from shardwright.cli.commands import program_name
from shardwright.cli.diagnosis import Finding, Result
from shardwright.cli.doctor_checks import Examined, examine
from shardwright.cli.exits import Exit
from shardwright.cli.output import print_document, print_lines, width_of_output
from shardwright.cli.taking_stock import take_stock
from shardwright.reporting.lines import Line, Role, Span, line, paragraph

_SIGNS: Final = {
    Result.FINE: ("ok", Role.HEADLINE, ""),
    Result.NOTED: ("note", Role.WARNING, ""),
    Result.WRONG: ("WRONG", Role.REFUSAL, ""),
    Result.UNREAD: ("?", Role.PLAIN, " (not looked at: you may not read what it takes)"),
    Result.SKIPPED: (
        "-",
        Role.PLAIN,
        " (not measured: --network-policies does, with a short-lived pod)",
    ),
}


def doctor(arguments: Namespace) -> int:
    """Print the findings, and return 1 if something is wrong.

    Raises:
        InputError: an option is about pods that were not asked for.
        UnreachableError: no answer, or no credentials.
    """
    cluster: Target = arguments.target
    program = program_name(sys.argv[0])
    stock = cluster.ask(lambda client: take_stock(client, arguments, program))
    examined = examine(stock)
    if arguments.output == "text":
        print_lines(lines_of(examined, width_of_output()))
    else:
        print_document("Diagnosis", document(examined), arguments.output)
    return (
        Exit.SOMETHING_WRONG if any(one.result is Result.WRONG for one in examined) else Exit.PLAN
    )


def lines_of(examined: Sequence[Examined], width: int) -> Iterator[Line]:
    """Yield each check with its findings and their commands, for a person."""
    for one in examined:
        sign, role, why = _SIGNS[one.result]
        first = [Span(f"{sign:<6}", role)]
        yield from paragraph(f"{one.check.what}{why}", width=width, first=first)
        for finding in one.findings:
            result = Result.WRONG if finding.wrong else Result.NOTED
            sign, role, _ = _SIGNS[result]
            # A finding of the check's own result needs no second sign.
            first = [Span(f"      {'' if result is one.result else f'{sign}: '}", role)]
            yield from paragraph(finding.message, width=width, first=first)
            yield line(Span("        $ ", Role.FAINT), Span(finding.command, Role.COMMAND))


def document(examined: Sequence[Examined]) -> dict[str, Any]:
    """Return the findings as a document for programs."""
    return {
        "checks": [
            {
                "check": one.check.name,
                "result": one.result.value,
                "findings": [_as_json(finding) for finding in one.findings],
            }
            for one in examined
        ]
    }


def _as_json(finding: Finding) -> dict[str, Any]:
    return {
        "reason": finding.reason,
        "wrong": finding.wrong,
        "namespace": finding.namespace or None,
        "objects": list(finding.objects),
        "message": finding.message,
        "command": finding.command,
    }
