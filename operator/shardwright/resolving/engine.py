"""Which engine runs, in which version, and does it take the options that a resource asks for? An
``InputError`` has everything that is refused, not only the first.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from shardwright.api import spec as wire
from shardwright.api.admission import (
    check_image,
    check_network,
    check_pod,
    check_sources,
    check_variables,
    is_image_admitted,
)
from shardwright.api.parts import unsaid
from shardwright.api.planner_request import adapter_slots, network_of
from shardwright.api.pod_spec import Pod
from shardwright.api.scaling import ServingRules
from shardwright.api.settings import (
    DEFAULTS,
    Settings,
    check_default_version,
    check_executor,
    check_priority_class,
    check_runtime_class,
)
from shardwright.api.spec import Spec, is_half
from shardwright.api.weights_source import BUCKETS, scheme_of
from shardwright.engines.options import Pins, check_arguments, check_features
from shardwright.engines.policy import Policy, canonical
from shardwright.engines.registry import ENGINES
from shardwright.engines.versions import built_for, engine_version
from shardwright.errors import InputError, Problem
from shardwright.layouts.layout import MOST_REPLICAS, EngineOptions, EngineTraits
from shardwright.resolving.model import Question


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """An option that a field of the spec turns into; ``asked``: whether a spec asks for it.

    ``of_plan``: engines that can be told it are told by a plan, so only others are asked for it.
    """

    option: str
    path: str
    asked: Callable[[Spec], bool]
    of_plan: bool = False


ENGINE_TEXT_MAX_BYTES: Final = 16_384 * MOST_REPLICAS
"""Unit: bytes of UTF-8, of the variables and arguments of all groups of a resource together.

Basis: assumed; the largest of 59 published recipes for vLLM has 438 a group. Every group has them
in its template, and the operator all groups in memory: with 64 values of 4,096 characters 1,000
groups were 588 MiB, if the chart gives 512.
"""

_SPECULATIVE: Final = "speculative-config"

FEATURES: Final = (
    Feature(
        option="quantization",
        path="spec.model.quantization",
        asked=lambda spec: spec.model.quantization == "FP8",
    ),
    Feature(
        option="dtype",
        path="spec.model.quantization",
        asked=lambda spec: spec.model.quantization in ("BF16", "FP16"),
    ),
    Feature(
        option="served-model-name",
        path="spec.model.servedName",
        asked=lambda spec: spec.model.served_name is not None,
        of_plan=True,
    ),
    Feature(
        option="kv-cache-dtype",
        path="spec.engine.kvCacheQuantization",
        asked=lambda spec: spec.engine.kv_cache_quantization not in (None, "Auto"),
    ),
    Feature(
        option="kv-offloading-size",
        path="spec.engine.kvOffload",
        asked=lambda spec: spec.engine.kv_offload is not None,
    ),
    Feature(
        option="load-format",
        path="spec.model.loadFormat",
        asked=lambda spec: spec.model.load_format != "Auto",
    ),
    Feature(
        option="model-loader-extra-config",
        path="spec.model.weights.uri",
        asked=lambda spec: scheme_of(spec.model.weights) in BUCKETS,
    ),
    Feature(
        option="lock-memory",
        path="spec.pod.network.lockMemory",
        asked=lambda spec: network_of(spec).lock_memory,
        of_plan=True,
    ),
    Feature(
        option="allowed-media-domains",
        path="spec.engine.mediaDomains",
        asked=lambda spec: bool(spec.engine.media_domains),
        of_plan=True,
    ),
    Feature(
        option="api-key",
        path="spec.engine.apiKeySecretRef",
        asked=lambda spec: spec.engine.api_key_secret_ref is not None,
        of_plan=True,
    ),
    Feature(
        option="enable-lora",
        path="spec.model.adapters",
        asked=lambda spec: bool(spec.model.adapters),
    ),
    Feature(
        option="requests-in-flight",
        path="spec.scaling",
        asked=lambda spec: spec.scaling is not None,
        of_plan=True,
    ),
    Feature(option="kv-transfer-config", path="spec.phase", asked=is_half),
    Feature(
        option="max-num-queued-reqs",
        path="spec.serving.overload",
        asked=lambda spec: (spec.serving or unsaid(ServingRules)).overload == "Refuse",
    ),
    Feature(
        option="scheduling-policy",
        path="spec.serving.order",
        asked=lambda spec: (spec.serving or unsaid(ServingRules)).order == "Priority",
    ),
    Feature(
        option=_SPECULATIVE,
        path="spec.engine.speculation",
        asked=lambda spec: spec.engine.speculation is not None,
    ),
)


def image_of(engine: wire.Engine, kept_version: str | None = None) -> str:
    """Return the named image, else the engine's own of the stated, kept or newest version."""
    return next(iter(images_of(engine, kept_version).values()), engine.image or "")


def images_of(engine: wire.Engine, kept_version: str | None = None) -> dict[str, str]:
    """Return the engine's own images of the stated, kept or newest version by their GPUs' resource.

    There are none if one is named, or the engine has none.
    """
    version = engine.version or kept_version
    return {
        resource: default
        if version is None
        # Our own defaults name no port, so the first colon begins the tag.
        else f"{default.partition(':')[0]}:v{version}"
        for resource, default in ENGINES[engine.name].releases.default_images.items()
        if engine.image is None
    }


def leaves_version_open(engine: wire.Engine) -> bool:
    """Return whether the version is ours to choose."""
    return (
        engine.image is None
        and engine.version is None
        and bool(ENGINES[engine.name].releases.default_image)
    )


def version_of(spec: Spec, question: Question, kept_version: str | None = None) -> str:
    """Return the version, which takes the options of the resource and of the defaults.

    ``spec`` is the question's with the administrator's defaults in it, ``kept_version`` the version
    to keep.

    Raises:
        InputError: The version is not known, or something that is asked of it cannot be said to it.
    """
    engine = ENGINES[spec.engine.name]
    version = engine_version(
        image_of(spec.engine, kept_version), spec.engine.version, engine.releases
    )
    if isinstance(version, Problem):
        raise InputError([version])
    own, settings = question.resource.spec.engine.args, question.settings
    # The defaults are the administrator's own word: dangerous options are admitted there.
    preset = {name: value for name, value in spec.engine.args.items() if name not in own}
    rules = engine.rules
    trusted = frozenset(rules.policy.admissible)
    problems = (
        *(
            problem.under("spec.engine.args")
            for problem in check_arguments(
                own,
                version,
                settings.policy.admitted_arguments,
                collectors=settings.policy.admitted_trace_collectors,
                rules=rules,
            )
        ),
        *(
            problem.under(f"{DEFAULTS}.engine.args")
            for problem in check_arguments(preset, version, trusted, rules=rules)
        ),
        *check_features(_asked(spec, rules.policy), version, rules),
        *_of_no_drafts(spec),
        *_reserved_in_name(spec),
        *check_executor(question.resource.spec, settings),
        *_unadmitted(question, _admitted_image(spec.engine, settings, kept_version)),
        *check_default_version(question.resource.spec, settings),
        *_check_text(question.resource.spec),
    )
    if problems:
        raise InputError(problems)
    return version


def _of_no_drafts(spec: Spec) -> Iterator[Problem]:
    """Return that arguments say how drafts are accepted where nothing is drafted."""
    said = next((name for name in spec.engine.args if canonical(name) == _SPECULATIVE), None)
    listed = ENGINES[spec.engine.name].rules.policy
    if (
        said
        and spec.engine.speculation is None
        and listed.listed_as(_SPECULATIVE) not in listed.owned
    ):
        yield Problem(
            code="EngineArgumentInvalid",
            path=f"spec.engine.args.{said}",
            what=said,
            limit="says how drafted tokens are accepted, but none are drafted",
            remedy="set spec.engine.speculation, or leave it out",
        )


def _reserved_in_name(spec: Spec) -> Iterator[Problem]:
    """Return that clients would call a model by a name that the engine does not take."""
    engine, name = ENGINES[spec.engine.name], spec.model.served_name or ""
    if found := next((each for each in engine.reserved if each in name), None):
        yield Problem(
            code="EngineArgumentInvalid",
            path="spec.model.servedName",
            what=f"{name!r}",
            limit=f"cannot have {found!r} with {engine.releases.engine}",
            gap="which keeps it for its own use",
            remedy="choose a name without it",
        )


def engine_text_max_bytes(spec: Spec) -> int:
    """Return the most bytes of variables and arguments that each group of a resource may have."""
    groups = MOST_REPLICAS if spec.replicas is None else max(1, spec.replicas)
    return ENGINE_TEXT_MAX_BYTES // groups


def _check_text(spec: Spec) -> Iterator[Problem]:
    variables = ((variable.name, variable.value) for variable in spec.engine.env)
    arguments = ((name, str(value)) for name, value in spec.engine.args.items())
    pod = spec.pod or unsaid(Pod)
    marks = [*(pod.labels or {}).items(), *(pod.annotations or {}).items()]
    size = sum(len(f"{name}{value}".encode()) for name, value in (*variables, *arguments, *marks))
    most = engine_text_max_bytes(spec)
    if size > most:
        yield Problem(
            code="EngineTextTooLarge",
            path="spec.engine",
            what=f"{size:,} bytes of "
            f"variables{', labels, annotations' if marks else ''} and arguments",
            limit=f"must be at most {most:,} with so many replicas",
            gap=f"{size - most:,} too many",
            remedy="shorten them, or set replicas to fewer; a "
            "large file belongs on a claim or into the image",
        )


def _admitted_image(engine: wire.Engine, settings: Settings, kept_version: str | None) -> str:
    # Of the default images the first that is admitted, if any is.
    return next(
        iter(_admitted(images_of(engine, kept_version), settings).values()),
        image_of(engine, kept_version),
    )


def _admitted(images: Mapping[str, str], settings: Settings) -> dict[str, str]:
    return {
        resource: image
        for resource, image in images.items()
        if is_image_admitted(image, settings.policy)
    }


def unadmitted_images(engine: wire.Engine, settings: Settings, version: str) -> dict[str, Problem]:
    """Return why default images must not be run, by their GPUs' resource, if others may be.

    No plan is made for such GPUs; an existing one was made while their image was admitted.
    """
    images = images_of(engine, version).items()
    return {
        resource: problem
        for resource, image in images
        for problem in check_image(image, settings.policy)
    }


def _unadmitted(question: Question, image: str) -> Iterator[Problem]:
    # The administrator has admitted the names in his own defaults.
    own, namespace, settings = (
        question.resource.spec,
        question.resource.metadata.namespace,
        question.settings,
    )
    by_default = settings.engine is not None and settings.engine.image == image
    yield from check_variables(own, ENGINES[own.engine.name].variables, settings.policy)
    yield from check_sources(own, None if by_default else image, settings.policy)
    yield from check_network(own, namespace, settings.policy)
    yield from check_pod(own, namespace, settings.pod, settings.policy)
    yield from check_runtime_class(own, settings)
    yield from check_priority_class(own, namespace, settings)


def pins_of(spec: Spec) -> Pins:
    """Return the user's arguments about the memory of a rank that the planner counts with."""
    rules = ENGINES[spec.engine.name].rules
    return rules.pins(spec.engine.args, rules.policy)


def traits_of(spec: Spec, version: str, pins: Pins, settings: Settings) -> EngineTraits:
    """Return the engine's traits for planning; the name of the user's image may tell its GPUs."""
    own = ENGINES[spec.engine.name].traits(version)
    batching, memory = own.batching, own.memory
    # The user's numbers replace the engine's: the engine is told them, so a plan counts with them.
    return replace(
        own,
        batching=replace(batching, chunks_prompts=batching.chunks_prompts and pins.chunks_prompts),
        memory=replace(
            memory,
            kv_block_tokens=pins.block_tokens or memory.kv_block_tokens,
            memory_utilization=pins.memory_utilization or memory.memory_utilization,
        ),
        support=replace(
            own.support,
            runs_on=_runs_on(spec.engine, version, settings),
            unproven=ENGINES[spec.engine.name].releases.unproven,
            proven_first=settings.proven_images_first,
        ),
        options=EngineOptions(
            image=spec.engine.image or "",
            over_ray=spec.engine.executor == "Ray",
            kv_cache_bytes=pins.kv_cache_bytes,
            adapters=adapter_slots(spec.model),
            looks_up=spec.engine.speculation is not None
            and spec.engine.speculation.method == "PromptLookup",
            told=pins.told,
        ),
    )


def _runs_on(engine: wire.Engine, version: str, settings: Settings) -> tuple[str, ...] | None:
    # The one to take first comes first. None if the image's name does not tell.
    releases = ENGINES[engine.name].releases
    # Only admitted default images: no plan for GPUs whose image could not run.
    if engine.image is None:
        return tuple(_admitted(images_of(engine, version), settings))
    told = built_for(engine.image)
    if told is not None and told in releases.runs_on:
        return (told,)
    # An engine for one vendor's GPUs needs no name of an image to tell them.
    return None if len(releases.runs_on) > 1 else tuple(releases.runs_on)


def _asked(spec: Spec, policy: Policy) -> dict[str, str]:
    told = (row for row in FEATURES if not row.of_plan or row.option in policy.missing)
    return {row.option: row.path for row in told if row.asked(spec)}
