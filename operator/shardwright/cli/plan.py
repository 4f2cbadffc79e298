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
from shardwright.api.settings import Settings, read_settings
from shardwright.cli.checkpoints import (
    Named,
    fetched_for,
    problem_of,
    read_config,
    read_unknown,
    with_config,
)
from shardwright.cli.exits import Exit
from shardwright.cli.inputs import STDIN, Given, name_the_file, read_sources, read_text
from shardwright.cli.named_gpus import NamedGpus, nodes_of, on_named_gpus, read_named_gpus
from shardwright.cli.namespaces import given_models, placed_in
from shardwright.cli.next_command import after_plan
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
    as_typed,
    name_of,
    plans_at_a_glance,
    plans_table,
    print_documents,
    print_names,
)
from shardwright.cli.surroundings import Surroundings, read_surroundings, slices_to_give
from shardwright.cli.typed import names_live_model, read_typed, typed_manifest, with_typed_layout
from shardwright.engines.vllm.releases import kept_default
from shardwright.errors import InputError, Problem
from shardwright.hardware.capabilities import Capability, lacking
from shardwright.hardware.inventory import Inventory
from shardwright.hardware.untrusted import mapping, text_or_empty
from shardwright.modelspec.catalogue import find_model
from shardwright.modelspec.parse import folder_text
from shardwright.pipeline import (
    Supply,
    bundle_for,
    compared,
    plan_serving,
    plan_with_survey,
    with_ways_out,
)
from shardwright.planning.comparison import Comparison
from shardwright.planning.report import Plan, Report
from shardwright.rendering.names import base_name
from shardwright.reporting.comparison import side_by_side
from shardwright.reporting.due import SECRET, Due, DuePoint, points
from shardwright.reporting.explanation import Explanation, Fact, with_drawings
from shardwright.reporting.explanation import explain as explain_report
from shardwright.reporting.figures import format_count
from shardwright.reporting.lines import Line, Span, line
from shardwright.reporting.screen import Screen, screen_of
from shardwright.reporting.screen_text import screen_lines
from shardwright.reporting.text import to_lines
from shardwright.resolving.fetching import source_of
from shardwright.resolving.question import Question
from shardwright.resolving.stock import reservations_of, take_stock
from shardwright.resolving.subject import Subject, resolve

if TYPE_CHECKING:
    from shardwright.api.record import PlanRecord
    from shardwright.cli.clusters import Target
    from shardwright.hub.checkpoint import Checkpoint
    from shardwright.rendering.bundle import Bundle

_WITHOUT_OPERATOR: Final = (
    "docs/howto/without-the-operator.md says how to make it if no operator does"
)

_PLAN_ONLY: Final = "PlanOnly: no pod is made, and no GPU is held"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInputs:
    """What the command line named: ShardedModels, and the sources for everything else."""

    resources: tuple[tuple[str, ShardedModel], ...]  # file, resource
    config_maps: Mapping[tuple[str, str], Mapping[str, Any]]  # by namespace and name
    config_text: str | None  # of --config: for every model whose spec has none
    config_file: str | None
    fetched: "Mapping[Named, Checkpoint]"  # of the hub
    settings: Settings
    cluster: "Target | None"
    surroundings: Surroundings
    named_gpus: tuple[NamedGpus, ...] = ()  # by --gpus
    standing: "PlanRecord | None" = None  # the plan of a ShardedModel named by NAME


def plan(arguments: Namespace) -> Exit:
    """Print the plan of every ShardedModel; the exit code says whether all have one."""
    answers = answers_to(read_inputs(arguments))
    if arguments.output == "manifest":
        _print_manifest(arguments, answers)
    elif arguments.output in {"json", "yaml"}:
        from shardwright.documents import plan_document  # noqa: PLC0415 - text does not pay for it

        print_documents(
            [plan_document(answer.subject, answer.report, answer.comparison) for answer in answers],
            arguments.output,
        )
    else:
        width = width_of_output()
        planned = not any(refusal for answer in answers for refusal in _refusals(answer))
        closing = after_plan(arguments, planned=planned, width=width)
        named = bool(arguments.gpus)
        _print_for_people(answers, arguments.output, partial(_screen, named=named), closing)
    return exit_of(answers)


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
        shown_only=answer.subject.intent.plan_only,
    )


def _print_manifest(arguments: Namespace, answers: Sequence[PlannedModel]) -> None:
    """Print the typed model as a ShardedModel, and on stderr what is to be done first. Without a
    plan print only the reason, as a pipe into kubectl hides the exit code.
    """
    refusals = [refusal for answer in answers for refusal in _refusals(answer)]
    for sentence, code in refusals:
        print_error(sentence, code)
    if refusals:
        return
    manifest = typed_manifest(arguments)
    for answer in answers:
        for point in points_of(answer, named=bool(arguments.gpus)):
            said = " ".join(filter(None, (point.said, point.command)))
            print_note(f"{answer.name}: {said}")
            if point.due is Due.GATED:
                manifest["spec"]["model"]["weights"] = {"secretRef": {"name": SECRET}}
    print_yaml([manifest])


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
        if all(isinstance(answer.report.outcome, Plan) for answer in answers)
        else Exit.NOTHING_FITS
    )


def explain(arguments: Namespace) -> Exit:
    """Print everything about the plan of every ShardedModel; the exit code is that of ``plan``."""
    answers = answers_to(read_inputs(arguments))
    if arguments.output not in {"json", "yaml"}:
        _print_for_people(answers, arguments.output, _explained)
        return exit_of(answers)
    from shardwright.documents import explanation_document  # noqa: PLC0415 - text does not pay for it

    documents = [
        explanation_document(
            answer.subject, answer.report, drawn_explanation_of(answer), answer.comparison
        )
        for answer in answers
    ]
    print_documents(documents, arguments.output)
    return exit_of(answers)


def render(arguments: Namespace) -> Exit:
    """Print the objects of all ShardedModels, or only the reasons on stderr if one has none."""
    answers = answers_to(read_inputs(arguments))
    refusals = [refusal for answer in answers for refusal in _refusals(answer)]
    for sentence, code in refusals:
        print_error(sentence, code)
    if refusals:
        return Exit.NOTHING_FITS
    if arguments.gpus:
        print_note(
            "the nodes of --gpus are made up, and pods are bound to them by name: to apply the "
            "objects, render them with --nodes"
        )
    bundles = [(answer, bundle) for answer in answers for bundle in _bundles(answer)]
    objects = [item for answer, bundle in bundles for item in _objects(answer, bundle)]
    for _, bundle in bundles:
        for secret in bundle.keys:
            print_note(
                f"the pods mount Secret {secret['metadata']['name']}, which is not printed: "
                f"{_WITHOUT_OPERATOR}"
            )
    if arguments.output == "json":
        print_json({"apiVersion": "v1", "kind": "List", "items": objects})
    elif arguments.output == "name":
        print_lines(line(Span(name_of(item))) for item in objects)
    else:
        print_yaml(objects)
    return Exit.PLAN


def read_inputs(arguments: Namespace) -> PlanInputs:
    """Return the inputs that the command line names, checked.

    Raises:
        InputError: A typed word, or the content of a file, is wrong.
    """
    if names_live_model(arguments):
        return _named_inputs(arguments)
    named = read_named_gpus(
        arguments.gpus, gpus_per_node=arguments.nodes_of, network_gbps_per_gpu=arguments.network
    )
    wanted = read_sources(arguments.filename or ())
    there = (
        *(Given(file="--gpus", content=node) for node in nodes_of(named)),
        *_there(arguments, wanted),
    )
    cluster: Target | None = arguments.target
    typed = arguments.model is not None
    resources = tuple(_typed(arguments, cluster) if typed else _given(arguments, wanted, cluster))
    _refuse_duplicates(resources)
    settings = _read_settings(arguments.settings) if arguments.settings else Settings()
    inputs = PlanInputs(
        resources=resources,
        config_maps={
            _key(source.content): source.content
            for source in (*there, *wanted)
            if source.kind == "ConfigMap"
        },
        config_text=read_config(arguments.config) if arguments.config else None,
        config_file=arguments.config,
        fetched={},
        settings=settings,
        cluster=cluster,
        surroundings=_with_stated(_surroundings(arguments, cluster, there, settings), arguments),
        named_gpus=named,
    )
    return _with_unknown(inputs, offline=arguments.offline)


def _with_unknown(inputs: PlanInputs, *, offline: bool) -> PlanInputs:
    """Return the inputs with the checkpoints of models whose config is nowhere else."""
    resources = (
        (file, resource, inputs.config_text is not None or _has_config(resource, inputs))
        for file, resource in inputs.resources
    )
    return replace(inputs, fetched=read_unknown(resources, offline=offline))


def _has_config(resource: ShardedModel, inputs: PlanInputs) -> bool:
    return _config_text(resource, inputs) is not None


def _named_inputs(arguments: Namespace) -> PlanInputs:
    from shardwright.cli.named_models import read_named  # noqa: PLC0415 - files need no cluster

    settings = _read_settings(arguments.settings) if arguments.settings else Settings()
    cluster: Target = arguments.target
    named = read_named(cluster, arguments.model, settings.stated)
    resources = ((arguments.model, named.resource),)
    inputs = PlanInputs(
        resources=resources,
        config_maps={},
        config_text=read_config(arguments.config) if arguments.config else None,
        config_file=arguments.config,
        fetched={},
        settings=settings,
        cluster=cluster,
        surroundings=_with_stated(named.surroundings, arguments),
        standing=named.record,
    )
    return _with_unknown(inputs, offline=arguments.offline)


def _surroundings(
    arguments: Namespace, cluster: "Target | None", there: Sequence[Given], settings: Settings
) -> Surroundings:
    if cluster:
        from shardwright.cli.live import read_surroundings_of  # noqa: PLC0415 - files need no cluster

        return read_surroundings_of(cluster, settings.stated)
    found = read_surroundings(there, settings.stated, arguments.nodes)
    if said := slices_to_give(there, found.nodes):
        print_note(said)
    # Named GPUs are free.
    return replace(found, usage=()) if arguments.gpus else found


def _with_stated(found: Surroundings, arguments: Namespace) -> Surroundings:
    kinds = {*map(str, found.lacking), *arguments.without}
    return replace(found, lacking=lacking(kinds))


def _there(arguments: Namespace, wanted: Sequence[Given]) -> tuple[Given, ...]:
    """Return the objects in the files of ``--nodes``; stdin is read once, and may hold both."""
    if STDIN not in (arguments.filename or ()):
        return read_sources(arguments.nodes)
    shared = (source for source in wanted if source.file == STDIN and STDIN in arguments.nodes)
    return (*read_sources(file for file in arguments.nodes if file != STDIN), *shared)


def _typed(arguments: Namespace, cluster: "Target | None") -> Iterator[tuple[str, ShardedModel]]:
    yield (
        "",
        read_typed(
            placed_in(typed_manifest(arguments), arguments.namespace, lambda: _namespace(cluster))
        ),
    )


def _given(
    arguments: Namespace, sources: Sequence[Given], cluster: "Target | None"
) -> Iterator[tuple[str, ShardedModel]]:
    for one in given_models(
        sources, arguments.filename, arguments.namespace, lambda: _namespace(cluster)
    ):
        yield one.file, with_typed_layout(one.resource, arguments)


def _refuse_duplicates(resources: Sequence[tuple[str, ShardedModel]]) -> None:
    """Raise an error for a ShardedModel given twice: the second would take more GPUs."""
    files: dict[tuple[str, str], str] = {}
    problems: list[Problem] = []
    for file, resource in resources:
        key = resource.metadata.namespace, resource.metadata.name
        if key in files:
            what, gap = (
                f"ShardedModel {key[1]} in namespace {key[0]}",
                f"it stands in {files[key]} before",
            )
            problems.append(
                Problem(code="Duplicate", path=file, what=what, limit="must be there once", gap=gap)
            )
        files.setdefault(key, file)
    if problems:
        raise InputError(problems)


def _namespace(cluster: "Target | None") -> str:
    """Return the context's namespace, as kubectl does; empty, the default, without a cluster."""
    return cluster.namespace if cluster else ""


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
        supply = Supply(inventory=inventory, restock=restock)
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
        lacks = inputs.surroundings.lacking
        return resolve(replace(question, settings=inputs.settings, lacking=lacks))
    except InputError as error:
        raise InputError(
            problem_of(problem, file, inputs.config_file) for problem in error.problems
        ) from None


def _kept(answer: PlannedModel) -> Iterator[Any]:
    owner, outcome = answer.subject.owner, answer.report.outcome
    if isinstance(outcome, Plan) and outcome.deployable and not answer.subject.intent.plan_only:
        yield from reservations_of((owner.namespace, base_name(owner.name)), outcome)


def question_of(resource: ShardedModel, inputs: PlanInputs) -> Question:
    """Return the question of a resource, with its model's config if that is not built in."""
    version = kept_default(inputs.standing.default_of_spec) if inputs.standing else None
    question = Question(
        resource=resource, catalogue=fetched_for(resource, inputs.fetched), kept_version=version
    )
    if inputs.config_text is not None:
        return with_config(question, inputs.config_text)
    return replace(question, config_text=_config_text(resource, inputs))


def _read_settings(file: str) -> Settings:
    return name_the_file(file, partial(read_settings, read_text(file)))


def _config_text(resource: ShardedModel, inputs: PlanInputs) -> str | None:
    source, named = source_of(resource), resource.spec.model.config_map_ref is not None
    if source is None or not (named or find_model(resource.spec.model.id) is None):
        return None
    namespace, (name, key) = resource.metadata.namespace, source
    found = inputs.config_maps.get((namespace, name))
    if found is None and inputs.cluster is not None:
        found = inputs.cluster.read_config_map(namespace, name, must=named)
    return folder_text(mapping((found or {}).get("data")), key)


def _key(content: Mapping[str, Any]) -> tuple[str, str]:
    metadata = mapping(content.get("metadata"))
    return text_or_empty(metadata.get("namespace")) or "default", text_or_empty(
        metadata.get("name")
    )


def explanation_of(answer: PlannedModel) -> Explanation:
    """Return the explanation of an answer, beginning with the model that is served."""
    subject = answer.subject
    engine = f"{subject.traits.name} {subject.traits.version}"
    served = (
        f"{subject.deployment.model}, {format_count(subject.model.parameters / 1e9)} B "
        f"parameters, on {engine}"
    )
    report = as_typed(answer.report) if answer.typed else answer.report
    explanation = explain_report(report, request=subject.request, inventory=answer.inventory)
    return replace(explanation, facts=(Fact(label="Model", value=served), *explanation.facts))


def _with_mode(answer: PlannedModel) -> Explanation:
    explanation = explanation_of(answer)
    if not answer.subject.intent.plan_only:
        return explanation
    served, *others = explanation.facts
    mode = Fact(label="Mode", value=_PLAN_ONLY)
    return replace(explanation, facts=(served, mode, *others))


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
    lines = to_lines(_with_mode(answer), title=answer.name, width=width)
    return [*lines, *_beside_the_best(answer, width), *closing]


def _beside_the_best(answer: PlannedModel, width: int) -> list[Line]:
    if answer.comparison is None:
        return []
    return [Line(), *side_by_side(answer.report.outcome, answer.comparison, width)]


def _screen(answer: PlannedModel, closing: Sequence[Line], *, named: bool) -> list[Line]:
    screen, width = screen_of_answer(answer, named=named), width_of_output()
    lines = screen_lines(screen, title=answer.name, width=width, closing=closing)
    return [*lines, *_beside_the_best(answer, width)]


def screen_of_answer(answer: PlannedModel, *, named: bool = False) -> Screen:
    """Return the first screen of an answer, beginning with the model that is served; ``named``: its
    GPUs were named on the command line.
    """
    subject = answer.subject
    report = as_typed(answer.report) if answer.typed else answer.report
    screen = screen_of(report, request=subject.request, inventory=answer.inventory, named=named)
    served = f"{subject.deployment.model} on {subject.traits.name} {subject.traits.version}"
    mode = (Fact(label="Mode", value=_PLAN_ONLY),) if subject.intent.plan_only else ()
    return replace(screen, facts=(Fact(label="Model", value=served), *mode, *screen.facts))


def _refusals(answer: PlannedModel) -> Iterator[tuple[str, str]]:
    outcome = answer.report.outcome
    problem = outcome.undeployable if isinstance(outcome, Plan) else outcome.problem
    if problem is not None:
        yield f"{answer.name}: {problem.sentence()}", problem.code


def _bundles(answer: PlannedModel) -> Iterator["Bundle"]:
    if isinstance(answer.report.outcome, Plan):
        yield bundle_for(answer.subject, answer.report.outcome)


def _objects(answer: PlannedModel, bundle: "Bundle") -> Iterator[Mapping[str, Any]]:
    """Yield the rendered objects; the API server refuses references to unknown owners."""
    for item in bundle.objects:
        yield item if answer.subject.owner.uid else _without_owner(item)


def _without_owner(item: Mapping[str, Any]) -> Mapping[str, Any]:
    from shardwright.rendering.hashing import with_content_hash  # noqa: PLC0415 - only for this form

    metadata = {key: value for key, value in item["metadata"].items() if key != "ownerReferences"}
    return with_content_hash({**item, "metadata": metadata})
