"""What is asked of ``plan``: manifests, options, nodes and settings, read from where they are."""

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from shardwright.api.resource import ShardedModel
from shardwright.api.settings import Settings, read_settings
from shardwright.cli.checkpoints import Named, fetched_for, read_config, read_unknown, with_config
from shardwright.cli.inputs import STDIN, Given, name_the_file, read_sources, read_text
from shardwright.cli.named_gpus import NamedGpus, nodes_of, read_named_gpus
from shardwright.cli.output import print_note
from shardwright.cli.surroundings import (
    Surroundings,
    claims_in,
    given_models,
    placed_in,
    read_surroundings,
    slices_to_give,
)
from shardwright.cli.typed import names_live_model, read_typed, typed_manifest, with_typed_layout
from shardwright.engines.vllm.releases import kept_default
from shardwright.errors import InputError, Problem
from shardwright.hardware.capabilities import lacking
from shardwright.hardware.untrusted import mapping, text_or_empty
from shardwright.modelspec.catalogue import find_model
from shardwright.modelspec.config_json import config_map_text
from shardwright.resolving.model import Question, source_of

if TYPE_CHECKING:
    from shardwright.api.record import PlanRecord
    from shardwright.cli.clusters import Target
    from shardwright.hub.checkpoint import Checkpoint


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
        surroundings=_with_stated(
            _with_claims(_surroundings(arguments, cluster, there, settings), wanted), arguments
        ),
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
    from shardwright.cli.live import read_named  # noqa: PLC0415 - files need no cluster

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


def _with_claims(found: Surroundings, wanted: Sequence[Given]) -> Surroundings:
    """Claims in the file of a model are made with it."""
    return replace(found, claims={**found.claims, **claims_in(wanted)})


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
    return config_map_text(found or {}, key)


def _key(content: Mapping[str, Any]) -> tuple[str, str]:
    metadata = mapping(content.get("metadata"))
    return text_or_empty(metadata.get("namespace")) or "default", text_or_empty(
        metadata.get("name")
    )
