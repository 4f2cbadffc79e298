"""The command ``doctor``: reads a cluster, prints the installation's faults and a command for each.

It fixes nothing itself, and writes only to measure NetworkPolicies.
"""

import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import Any, Final

from shardwright.cli.clusters import Target
from shardwright.cli.commands import program_name
from shardwright.cli.diagnosis import Finding, Result
from shardwright.cli.doctor_checks import Examined, examine
from shardwright.cli.exits import Exit
from shardwright.cli.output import print_document, print_lines, width_of_output
from shardwright.cli.taking_stock import take_stock
from shardwright.reporting.lines import Line, Role, Span, line, paragraph

LINES: Final = 20
"""How many lines a person is shown, as many as are read at once; ``-o json`` has everything."""

_SIGNS: Final = {True: ("WRONG", Role.REFUSAL), False: ("note", Role.WARNING)}

_WITHOUT: Final = {
    Result.FINE: ("ok", ""),
    Result.UNREAD: ("?", " (not looked at: you may not read what it takes)"),
    Result.SKIPPED: ("-", " (not measured: --network-policies does, with a short-lived pod)"),
}
"""The signs of checks without findings, and why."""


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


def lines_of(examined: Sequence[Examined], width: int) -> list[Line]:
    """Return what a person is shown: what is wrong, causes first, what is only noted, the rest.

    At most :data:`LINES`, and at least one finding, with their commands.
    """
    rest = [
        one_line
        for result, (sign, why) in _WITHOUT.items()
        if (those := [one.check.what for one in examined if one.result is result])
        for one_line in _row(sign, f"{', '.join(those)}{why}", width)
    ]
    findings = [finding for one in examined for finding in one.findings]
    # Stable: the order of the checks has causes before what follows from them.
    findings.sort(key=lambda finding: not finding.wrong)
    shown: list[Line] = []
    for index, finding in enumerate(findings):
        left = len(findings) - index
        said = _said(finding, width)
        # One line is kept for how many are left out, except where this is the last.
        if shown and len(shown) + len(said) + len(rest) + (left > 1) > LINES:
            shown += _row("", f"and {left} more findings: -o json has all", width)
            break
        shown += said
    return [*shown, *rest]


def _said(finding: Finding, width: int) -> list[Line]:
    sign, role = _SIGNS[finding.wrong]
    command = line(Span("        $ ", Role.FAINT), Span(finding.command, Role.COMMAND))
    return [*_row(sign, finding.message, width, role), command]


def _row(sign: str, text: str, width: int, role: Role = Role.PLAIN) -> list[Line]:
    return paragraph(text, width=width, first=[Span(f"{sign:<6}", role)])


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
