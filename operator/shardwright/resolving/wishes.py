"""Which fields of a question does its user not need, and how is it without them? The model and its
load are no wishes: without them it is another question.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final

from shardwright.engines.registry import ENGINES
from shardwright.hardware.capabilities import RdmaRequest
from shardwright.hardware.scheduling import PodTerms
from shardwright.layouts.layout import SearchSpace
from shardwright.planning.checks import KV_BYTES_PATH, MODEL_LENGTH
from shardwright.resolving.subject import Subject

LeaveOut = Callable[[Subject], Subject]

PINS: Final[Mapping[str, str]] = {
    "spec.parallelism.tensor": "tensor",
    "spec.parallelism.pipeline": "pipeline",
    "spec.parallelism.expert": "expert",
    "spec.parallelism.dataParallelAttention": "attention_data",
    "spec.parallelism.context": "context",
    "spec.parallelism.partition": "partition",
}
"""Pinned degrees, by the field that pins them."""

_BUDGETS: Final = {"spec.budget.gpus": "max_gpus", "spec.budget.nodes": "max_nodes"}
_LIMITS: Final = {
    "spec.objective.ttftMilliseconds": "ttft_seconds",
    "spec.objective.tpotMilliseconds": "tpot_seconds",
}
_LEFT_OPEN: Final = SearchSpace()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A field that the user has set, and the question without it.

    ``bars`` is why nodes are excluded by it (empty: it excludes none). Of a plan that stands a
    field is ``weighed`` if it says where, how and on how much a model runs, and not what is served.
    """

    field: str
    leave_out: LeaveOut
    bars: str = ""
    weighed: bool = True


def wishes_of(subject: Subject) -> tuple[Wish, ...]:
    """Return the fields that the user of a subject has set; the administrator's are not his."""
    own = (*_of_nodes(subject), *_of_space(subject), *_of_limits(subject), *_of_engine(subject))
    # The degrees of a stated model are no wish: nothing is known of it at others.
    kept = {*subject.defaulted, *(PINS if subject.model.stated else ())}
    return tuple(
        wish for wish in own if kept.isdisjoint({wish.field, wish.field.removeprefix("spec.")})
    )


def leave_out(subject: Subject, wishes: Sequence[Wish], fields: Sequence[str]) -> Subject:
    """Return a subject without these of its fields."""
    changes = (wish.leave_out for wish in wishes if wish.field in fields)
    return reduce(lambda asked, change: change(asked), changes, subject)


def _of_nodes(subject: Subject) -> Iterator[Wish]:
    terms = subject.terms
    if terms.selector:
        yield Wish(
            field="spec.placement.nodeSelector",
            leave_out=_with_terms(selector={}),
            bars="SelectorMismatch",
        )
    if terms.mig_profile:
        yield Wish(
            field="spec.placement.migProfile",
            leave_out=_with_terms(mig_profile=PodTerms().mig_profile),
            bars="MigProfileMismatch",
        )
    if terms.rdma.devices:
        yield Wish(
            field="spec.pod.network.resources",
            leave_out=_with_terms(rdma=RdmaRequest()),
            weighed=False,
        )


def _of_space(subject: Subject) -> Iterator[Wish]:
    space = subject.request.space
    for field, name in (*_BUDGETS.items(), *PINS.items()):
        if getattr(space, name):
            yield Wish(field=field, leave_out=_with_space(**{name: getattr(_LEFT_OPEN, name)}))
    # With a budget to fill the plan says how many there are.
    if not space.fill and space.replicas is not None:
        yield Wish(field="spec.replicas", leave_out=_with_space(replicas=None))


def _of_limits(subject: Subject) -> Iterator[Wish]:
    for field, name in _LIMITS.items():
        if getattr(subject.request.objective, name) is not None:
            yield Wish(field=field, leave_out=_with_objective(**{name: None}))


def _of_engine(subject: Subject) -> Iterator[Wish]:
    load, options = subject.request.workload, subject.traits.options
    default_images = ENGINES[subject.deployment.engine].releases.default_images
    set_by_user: tuple[tuple[bool, str, LeaveOut], ...] = (
        (load.open_model_len is None, MODEL_LENGTH, _as_long_as_needed),
        (
            load.kv_cache_dtype == "fp8",
            "spec.engine.kvCacheQuantization",
            _with_load(kv_cache_dtype="auto"),
        ),
        (load.kv_offload is not None, "spec.engine.kvOffload", _with_load(kv_offload=None)),
        (load.draft_tokens > 0, "spec.engine.speculation", _without_drafts),
        (options.kv_cache_bytes is not None, KV_BYTES_PATH, _with_options(kv_cache_bytes=None)),
        (options.over_ray, "spec.engine.executor", _with_options(over_ray=False)),
        (options.adapters is not None, "spec.model.adapters", _with_options(adapters=None)),
        (
            bool(options.image and default_images),
            "spec.engine.image",
            lambda asked: _on(asked, tuple(default_images)),
        ),
    )
    for is_set, field, change in set_by_user:
        if is_set:
            yield Wish(field=field, leave_out=change, weighed=False)


def _with_terms(**changes: Any) -> LeaveOut:
    return lambda asked: replace(asked, terms=replace(asked.terms, **changes))


def _with_space(**changes: Any) -> LeaveOut:
    def change(asked: Subject) -> Subject:
        request = asked.request
        return replace(asked, request=replace(request, space=replace(request.space, **changes)))

    return change


def _with_objective(**changes: Any) -> LeaveOut:
    def change(asked: Subject) -> Subject:
        request = asked.request
        return replace(
            asked, request=replace(request, objective=replace(request.objective, **changes))
        )

    return change


def _with_load(**changes: Any) -> LeaveOut:
    def change(asked: Subject) -> Subject:
        request = asked.request
        return replace(
            asked, request=replace(request, workload=replace(request.workload, **changes))
        )

    return change


def _with_options(**changes: Any) -> LeaveOut:
    def change(asked: Subject) -> Subject:
        traits = asked.traits
        return replace(asked, traits=replace(traits, options=replace(traits.options, **changes)))

    return change


def _as_long_as_needed(asked: Subject) -> Subject:
    load = asked.request.workload
    needed = load.input_tokens + load.output_tokens
    return _with_load(max_model_len=needed, open_model_len=needed)(asked)


def _without_drafts(asked: Subject) -> Subject:
    alone = _with_options(drafter=None)(asked)
    return _with_load(
        draft_tokens=0, draft_acceptance=0.0, draft_acceptance_band=0.0, draft_choices=()
    )(alone)


def _on(asked: Subject, resources: tuple[str, ...]) -> Subject:
    """Return a subject on the GPUs that the engine's own images are built for."""
    traits = _with_options(image="")(asked).traits
    return replace(
        asked, traits=replace(traits, support=replace(traits.support, runs_on=resources))
    )
