"""The command ``report``: the explanation of one plan as a page for a browser."""

from argparse import Namespace

from shardwright.cli.exits import Exit
from shardwright.cli.loads import loads_around
from shardwright.cli.output import print_text
from shardwright.cli.plan import answers_to, drawn_explanation_of, exit_of
from shardwright.cli.plan_inputs import read_inputs
from shardwright.documents import explanation_document
from shardwright.errors import InputError, Problem
from shardwright.pages.page import plan_page


def report(arguments: Namespace) -> Exit:
    """Print the page of one ShardedModel; the exit code is that of ``plan``.

    Raises:
        InputError: several ShardedModels were given.
    """
    inputs = read_inputs(arguments)
    if len(inputs.resources) > 1:
        names = ", ".join(resource.metadata.name for _, resource in inputs.resources[:3])
        what, limit = (f"{len(inputs.resources)} ShardedModels are there", "and a report shows one")
        remedy = (
            "make one for each: "
            f"{names}{', …' if len(inputs.resources) > len(names.split(', ')) else ''}"
        )
        raise InputError(
            [Problem(code="NotTogether", path="-f", what=what, limit=limit, remedy=remedy)]
        )
    (answer,) = answers_to(inputs)
    explanation = drawn_explanation_of(answer)
    loads = loads_around(answer, inputs, candidates=len(explanation.candidates))
    print_text(
        plan_page(
            explanation_document(answer.subject, answer.report, explanation), loads
        ).removesuffix("\n")
    )
    return exit_of([answer])
