"""The commands ``plan`` and ``render``: files or a cluster in, text or objects out, by the
operator's pipeline.

A ShardedModel given twice is refused, and so is ``--config`` for one that has a config.
"""

from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from shardwright.api.resource import ShardedModel
from shardwright.cli.checkpoints import problem_of
from shardwright.cli.exits import Exit
from shardwright.cli.named_gpus import more_of, nodes_of, on_named_gpus
from shardwright.cli.output import (
    print_error,
    print_json,
    print_lines,
    print_note,
    print_yaml,
    width_of_output,
)
from shardwright.cli.plan_forms import (
    PlanRow,
    after_plan,
    as_typed,
    is_short,
    name_of,
    plans_at_a_glance,
    plans_table,
    print_documents,
    print_names,
)
from shardwright.cli.plan_inputs import PlanInputs, question_of, read_inputs
from shardwright.cli.surroundings import read_nodes
from shardwright.cli.typed import typed_manifest
from shardwright.errors import InputError
from shardwright.hardware.capabilities import Capability
from shardwright.hardware.inventory import Inventory
from shardwright.pipeline.assembly import (
    Supply,
    bundle_for,
    compared,
    plan_serving,
    plan_with_survey,
    with_ways_out,
)
from shardwright.pipeline.explaining import PLAN_ONLY, of_subject
from shardwright.planning.comparison import Comparison
from shardwright.planning.report import Pair, PairCode, Plan, Report
from shardwright.rendering.names import base_name
from shardwright.reporting.explanation import Explanation, Fact, with_drawings
from shardwright.reporting.explanation import explain as explain_report
from shardwright.reporting.lines import Line, Span, line
from shardwright.reporting.screen import SECRET, Due, DuePoint, Screen, points, screen_of
from shardwright.reporting.screen_text import screen_lines
from shardwright.reporting.text import side_by_side, to_lines
from shardwright.resolving.stock import reservations_of, take_stock
from shardwright.resolving.subject import Subject, resolve

if TYPE_CHECKING:
    from shardwright.rendering.bundle import Bundle

_WITHOUT_OPERATOR: Final[Mapping[str, str]] = {
    "ConfigMap": "--scripts prints it, too",
    "Secret": "docs/howto/migrating.md says how to make it if no operator does",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedModel:
    """A ShardedModel with everything found out about it; ``typed``: its fields are options."""

    subject: Subject
    inventory: Inventory
    report: Report
    typed: bool = False
    comparison: Comparison | None = None

    @property
    def name(self) -> str:
        """Return the name of the resource."""
        return self.subject.owner.name


def plan(arguments: Namespace) -> Exit:
    """Print the plan of every ShardedModel; the exit code says whether all have one."""
    inputs = read_inputs(arguments)
    answers = answers_to(inputs)
    if arguments.output == "manifest":
        _print_manifest(arguments, inputs, answers)
    elif arguments.output in {"json", "yaml"}:
        from shardwright.pipeline.documents import plan_document  # noqa: PLC0415 - text does not pay for it

        print_documents(
            [plan_document(answer.subject, answer.report, answer.comparison) for answer in answers],
            arguments.output,
        )
    else:
        width = width_of_output()
        planned = not any(refusal for answer in answers for refusal in _refusals(answer))
        carried = not any(map(_is_short, answers))
        # The operator makes no halves, nor whole groups of who asks for them.
        asked = any(each.subject.request.pair and not _only_planned(each) for each in answers)
        apart = all(map(_is_apart, answers))
        if asked and arguments.filename and not apart:
            planned = False
        closing = after_plan(
            arguments, planned=planned, carried=carried, rendered=asked and apart, width=width
        )
        named = bool(arguments.gpus)
        _print_for_people(answers, arguments.output, partial(_screen, named=named), closing)
    return exit_of(answers)


def predicted(arguments: Namespace) -> Exit:
    """Print what ``plan`` prints of a model and GPUs that are named on the command line."""
    words = list(arguments.words)
    words[words.index("predict")] = "plan"
    told = {**vars(arguments), "words": words, "filename": (), "namespace": ""}
    return plan(Namespace(**told, nodes=[], without=[], by_operator=False))


def _print_for_people(
    answers: Sequence[PlannedModel],
    form: str,
    lines_of: Callable[[PlannedModel, Sequence[Line]], list[Line]],
    closing: Sequence[Line] = (),
) -> None:
    if form == "wide":
        print_lines(plans_table(map(_plan_row, answers)))
    elif form == "name":
        print_names(answer.name for answer in answers)
    elif len(answers) == 1:
        print_lines(lines_of(answers[0], closing))
    else:
        for answer in answers:
            print_lines([*lines_of(answer, ()), Line()])
        rows = [_plan_row(answer) for answer in answers]
        print_lines([*plans_at_a_glance(rows, width_of_output()), *closing])


def _plan_row(answer: PlannedModel) -> PlanRow:
    return PlanRow(
        name=answer.name,
        outcome=answer.report.outcome,
        request=answer.subject.request,
        shown_only=_only_planned(answer),
    )


def _print_manifest(
    arguments: Namespace, inputs: PlanInputs, answers: Sequence[PlannedModel]
) -> None:
    """Print the typed model as a ShardedModel, of a pair its halves, and on stderr what is to be
    done first. Without a plan print only the reason, as a pipe into kubectl hides the exit code.
    """
    refusals = [refusal for answer in answers for refusal in _refusals(answer)]
    for sentence, code in refusals:
        print_error(sentence, code)
    if refusals:
        return
    manifests = _manifests(arguments, inputs, answers)
    for answer in answers:
        for point in points_of(answer, named=bool(arguments.gpus)):
            said = " ".join(filter(None, (point.said, point.command)))
            print_note(f"{answer.name}: {said}")
            if point.due is Due.GATED:
                for manifest in manifests:
                    manifest["spec"]["model"]["weights"] = {"secretRef": {"name": SECRET}}
    print_yaml(manifests)


def _manifests(
    arguments: Namespace, inputs: PlanInputs, answers: Sequence[PlannedModel]
) -> Sequence[Mapping[str, Any]]:
    if halves := _halves(inputs, answers):
        return halves
    manifest = typed_manifest(arguments)
    # The answer is whole groups: the operator takes no question.
    if any(answer.subject.request.pair for answer in answers):
        del manifest["spec"]["disaggregation"], manifest["spec"]["routing"]
    return [manifest]


def points_of(answer: PlannedModel, *, named: bool) -> tuple[DuePoint, ...]:
    """Return everything to be done before a plan is applied."""
    outcome = answer.report.outcome
    if not isinstance(outcome, Plan):
        return ()
    return points(outcome, answer.subject.request, answer.inventory, named=named)


def exit_of(answers: Sequence[PlannedModel]) -> Exit:
    """Return whether all have a plan."""
    return (
        Exit.PLAN
        if all(isinstance(each.report.outcome, Plan) or _is_apart(each) for each in answers)
        else Exit.NOTHING_FITS
    )


def explain(arguments: Namespace) -> Exit:
    """Print everything about the plan of every ShardedModel; the exit code is that of ``plan``."""
    answers = answers_to(read_inputs(arguments))
    if arguments.output not in {"json", "yaml"}:
        _print_for_people(answers, arguments.output, _explained)
        return exit_of(answers)
    from shardwright.pipeline.documents import explanation_document  # noqa: PLC0415 - text does not pay for it

    documents = [
        explanation_document(
            answer.subject, answer.report, drawn_explanation_of(answer), answer.comparison
        )
        for answer in answers
    ]
    print_documents(documents, arguments.output)
    return exit_of(answers)


def render(arguments: Namespace) -> Exit:
    """Print the objects of all ShardedModels, or only the reasons on stderr if one has none; of a
    pair the two models of its halves.
    """
    inputs = read_inputs(arguments)
    planned = answers_to(inputs)
    halves = _halves(inputs, planned)
    answers = [answer for answer in planned if not _is_apart(answer)]
    refusals = [refusal for answer in answers for refusal in _refusals(answer)]
    for sentence, code in refusals:
        print_error(sentence, code)
    if refusals:
        return Exit.NOTHING_FITS
    if arguments.gpus and answers:
        print_note(
            "the nodes of --gpus are made up, and pods are bound to them by name: to apply the "
            "objects, render them with --nodes"
        )
    bundles = [(answer, bundle) for answer in answers for bundle in _bundles(answer)]
    objects = [*halves, *(item for answer, bundle in bundles for item in _objects(answer, bundle))]
    left = [item for item in objects if item["kind"] == "ConfigMap" and not arguments.scripts]
    objects = [item for item in objects if item not in left]
    for item in (*left, *(secret for _, bundle in bundles for secret in bundle.keys)):
        print_note(
            f"the pods mount {item['kind']} {item['metadata']['name']}, which is not printed: "
            f"{_WITHOUT_OPERATOR[item['kind']]}"
        )
    if arguments.output == "json":
        print_json({"apiVersion": "v1", "kind": "List", "items": objects})
    elif arguments.output == "name":
        print_lines(line(Span(name_of(item))) for item in objects)
    else:
        print_yaml(objects)
    return Exit.PLAN


def answers_to(inputs: PlanInputs) -> list[PlannedModel]:
    """Plan one after another, as the operator does: GPUs that one keeps are gone for the next."""
    subjects = [_subject(file, resource, inputs) for file, resource in inputs.resources]
    answers: list[PlannedModel] = []
    kept = list(inputs.surroundings.reservations)
    for (file, _), subject in zip(inputs.resources, subjects, strict=True):
        named, around = inputs.named_gpus, inputs.surroundings
        asked = on_named_gpus(subject, named) if named else subject
        restock = partial(
            take_stock, facts=around.nodes, usage=around.usage, reservations=tuple(kept)
        )
        inventory = restock(asked)
        report = (
            inputs.standing.report()
            if inputs.standing
            else _with_assumed(plan_serving(subject, inventory), inputs)
        )
        supply = Supply(
            inventory=inventory, restock=restock, more=_more(asked, inputs, kept), named=bool(named)
        )
        answer = PlannedModel(
            subject=subject,
            inventory=inventory,
            report=with_ways_out(asked, supply, report),
            typed=not file,
            # A plan of record holds GPUs that its best rival could not have.
            comparison=None if inputs.standing else compared(subject, inventory, report),
        )
        kept += _kept(answer)
        answers.append(answer)
    return answers


def _more(
    asked: Subject, inputs: PlanInputs, kept: Sequence[Any]
) -> Iterator[tuple[str, Inventory]]:
    """Yield the stock with more of the GPUs of ``--gpus``, and how they are named."""
    for said, grown in more_of(inputs.named_gpus):
        nodes = read_nodes(nodes_of(grown), inputs.settings.stated)
        yield said, take_stock(asked, nodes, (), tuple(kept))


def _with_assumed(report: Report, inputs: PlanInputs) -> Report:
    """Return a report that says what a plan takes a cluster to serve that nobody could ask."""
    outcome = report.outcome
    if inputs.cluster or not (isinstance(outcome, Plan) and outcome.compute_domain):
        return report
    said = (
        "the cluster is assumed to serve ComputeDomains, by NVIDIA's DRA driver: "
        f"--without {Capability.COMPUTE_DOMAINS} plans for one that does not"
    )
    return replace(report, outcome=replace(outcome, warnings=(*outcome.warnings, said)))


def _subject(file: str, resource: ShardedModel, inputs: PlanInputs) -> Subject:
    """Return the question of a manifest; a fault in the config is reported under ``--config``."""
    try:
        question = question_of(resource, inputs)
        around = inputs.surroundings
        return resolve(
            replace(
                question, settings=inputs.settings, lacking=around.lacking, claims=around.claims
            )
        )
    except InputError as error:
        raise InputError(
            problem_of(problem, file, inputs.config_file) for problem in error.problems
        ) from None


def _kept(answer: PlannedModel) -> Iterator[Any]:
    owner, outcome = answer.subject.owner, answer.report.outcome
    if isinstance(outcome, Plan) and outcome.deployable and not answer.subject.intent.plan_only:
        yield from reservations_of((owner.namespace, base_name(owner.name)), outcome)


def explanation_of(answer: PlannedModel) -> Explanation:
    """Return the explanation of an answer, beginning with the model that is served."""
    report = as_typed(answer.report) if answer.typed else answer.report
    request, inventory = answer.subject.request, answer.inventory
    return of_subject(answer.subject, explain_report(report, request=request, inventory=inventory))


def drawn_explanation_of(answer: PlannedModel) -> Explanation:
    """Return an explanation with ranks, links and all candidates, for pictures and programs."""
    subject, inventory = answer.subject, answer.inventory
    _, surveyed = plan_with_survey(subject, inventory)
    return with_drawings(
        explanation_of(answer),
        answer.report,
        model=subject.model,
        inventory=inventory,
        surveyed=surveyed,
    )


def _explained(answer: PlannedModel, closing: Sequence[Line]) -> list[Line]:
    width = width_of_output()
    lines = to_lines(explanation_of(answer), title=answer.name, width=width)
    return [*lines, *_beside_the_best(answer, width), *closing]


def _beside_the_best(answer: PlannedModel, width: int) -> list[Line]:
    if answer.comparison is None:
        return []
    return [Line(), *side_by_side(answer.report.outcome, answer.comparison, width)]


def _screen(answer: PlannedModel, closing: Sequence[Line], *, named: bool) -> list[Line]:
    screen = screen_of_answer(answer, named=named)
    return screen_lines(screen, title=answer.name, width=width_of_output(), closing=closing)


def screen_of_answer(answer: PlannedModel, *, named: bool = False) -> Screen:
    """Return the first screen of an answer, beginning with the model that is served; ``named``: its
    GPUs were named on the command line.
    """
    subject = answer.subject
    report = as_typed(answer.report) if answer.typed else answer.report
    screen = screen_of(
        report,
        request=subject.request,
        inventory=answer.inventory,
        named=named,
        comparison=answer.comparison,
    )
    served = f"{subject.deployment.model} on {subject.traits.name} {subject.traits.version}"
    mode = (Fact(label="Mode", value=PLAN_ONLY),) if subject.intent.plan_only else ()
    return replace(screen, facts=(Fact(label="Model", value=served), *mode, *screen.facts))


def _refusals(answer: PlannedModel) -> Iterator[tuple[str, str]]:
    outcome = answer.report.outcome
    problem = outcome.undeployable if isinstance(outcome, Plan) else outcome.problem
    if problem is not None and not _is_apart(answer):
        yield f"{answer.name}: {problem.sentence()}", problem.code


def _only_planned(answer: PlannedModel) -> bool:
    return answer.subject.intent.plan_only


def _taken(answer: PlannedModel) -> Pair | None:
    choice = answer.report.pair
    return choice.best if choice and choice.taken else None


def _is_apart(answer: PlannedModel) -> bool:
    return _taken(answer) is not None


def _is_short(answer: PlannedModel) -> bool:
    choice = answer.report.pair
    if choice is None or not choice.taken:
        return is_short(answer.report.outcome)
    return any(reason.code is PairCode.PAIR_MISSES_LIMITS for reason in choice.reasons)


def _halves(inputs: PlanInputs, answers: Sequence[PlannedModel]) -> list[dict[str, Any]]:
    """Return the two models of every pair that is taken."""
    from shardwright.resolving.paired_models import halves_of  # noqa: PLC0415 - only for this form

    return [
        half
        for (_, resource), answer in zip(inputs.resources, answers, strict=True)
        if (pair := _taken(answer))
        for half in halves_of(resource, pair)
    ]


def _bundles(answer: PlannedModel) -> Iterator["Bundle"]:
    if isinstance(answer.report.outcome, Plan):
        yield bundle_for(answer.subject, answer.report.outcome)


def _objects(answer: PlannedModel, bundle: "Bundle") -> Iterator[Mapping[str, Any]]:
    """Yield the rendered objects; the API server refuses references to unknown owners."""
    for item in bundle.objects:
        yield item if answer.subject.owner.uid else _without_owner(item)


def _without_owner(item: Mapping[str, Any]) -> Mapping[str, Any]:
    from shardwright.rendering.bundle import with_content_hash  # noqa: PLC0415 - only for this form

    metadata = {key: value for key, value in item["metadata"].items() if key != "ownerReferences"}
    return with_content_hash({**item, "metadata": metadata})
