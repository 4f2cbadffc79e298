"""Which hashes change with all that makes a new plan necessary, and with nothing else?"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from shardwright.api.parts import unsaid
from shardwright.api.pod import Pod
from shardwright.api.spec import Spec
from shardwright.api.weights import HUB, HUB_KEY, Weights, scheme_of
from shardwright.modelspec.spec import ModelSpec

NOT_PLANNED_WITH: Final = ("paused", "mode", "replan", "restart", "rollout", "readiness")
"""Fields of the spec that say what to do with a plan, not what to plan."""

ONLY_PLANNED_WITH: Final = ("workload", "replicas", "objective", "budget", "parallelism")
NOT_IN_PODS: Final = (
    *(name for name in NOT_PLANNED_WITH if name != "readiness"),
    *ONLY_PLANNED_WITH,
)
"""Fields of the spec that change pods of a group through its plan only, or not at all."""

OF_RUNNING_PODS: Final = ("labels", "annotations", "serviceAccountName", "volumes")
"""Fields of ``spec.pod`` that pods have from their creation on, and that no plan asks for: a
change restarts pods, and plans nothing.
"""

OF_NEXT_START: Final = ("imagePullPolicy",)
"""Fields of ``spec.pod`` that running pods do not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hashes:
    """``whole`` covers all that a plan depends on beside the cluster, ``cut`` the same without the
    number of replicas.

    ``pods`` covers all that the pods of a group depend on beside the plan: of a model only its
    ``config.json``, so that an added quantization file that changes no plan restarts nothing.
    """

    whole: str
    cut: str
    pods: str


def hashes_of(spec: Spec, model: ModelSpec, draft: ModelSpec | None, version: str) -> Hashes:
    """Return the hashes of a spec, the models that it names and the version of the engine."""
    named = [one for one in (model, draft) if one is not None]
    models, files = ([one.config_hash for one in named], [one.config_file_hash for one in named])
    plain: dict[str, Any] = _without_said_defaults(spec).model_dump(
        # Without fields that nobody sets: a new field of the spec leaves all stored hashes as they
        # are (ADR 15).
        mode="json",
        by_alias=True,
        exclude_none=True,
    )
    return Hashes(
        whole=_hash(_planned_with(plain, NOT_PLANNED_WITH), models, version),
        cut=_hash(_planned_with(plain, (*NOT_PLANNED_WITH, "replicas")), models, version),
        pods=_hash(
            # How replicas are spread reaches pods by the nodes of the plan alone.
            _without(plain, NOT_IN_PODS, (*OF_NEXT_START, "topologySpread")),
            files,
            version,
        ),
    )


def _without_said_defaults(spec: Spec) -> Spec:
    """Return a spec without what it says of its weights that holds if it is left out, too."""
    weights = spec.model.weights
    if weights is None:
        return spec
    secret = weights.secret_ref
    if scheme_of(weights) == HUB:
        weights = weights.model_copy(update={"uri": None})
    if secret is not None and secret.key == HUB_KEY:
        secret = secret.model_copy(update={"key": None})
        weights = weights.model_copy(update={"secret_ref": secret})
    said = weights if weights != unsaid(Weights) else None
    return spec.model_copy(update={"model": spec.model.model_copy(update={"weights": said})})


def _planned_with(spec: Mapping[str, Any], without: Collection[str]) -> dict[str, Any]:
    return _without(spec, without, (*OF_RUNNING_PODS, *OF_NEXT_START))


def _without(
    spec: Mapping[str, Any], names: Collection[str], of_pod: Collection[str]
) -> dict[str, Any]:
    # A pod section that becomes empty is left out.
    fields = {name: value for name, value in spec.items() if name not in names}
    pod = fields.get("pod")
    if pod is not None and not pod.keys().isdisjoint(of_pod):
        fields["pod"] = {name: value for name, value in pod.items() if name not in of_pod}
        if fields["pod"] == _empty_pod():
            del fields["pod"]
    return fields


@cache
def _empty_pod() -> Mapping[str, Any]:
    return unsaid(Pod).model_dump(mode="json", by_alias=True, exclude_none=True)


def _hash(fields: Mapping[str, Any], models: Iterable[str], version: str) -> str:
    config, *drafts = models
    canonical = json.dumps(
        [fields, config, version, *drafts], sort_keys=True, separators=(",", ":")
    )
    return hashlib.sha256(canonical.encode()).hexdigest()
