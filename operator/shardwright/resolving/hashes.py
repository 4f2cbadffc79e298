"""Hashes of a question: they change with what makes a new plan necessary, and with nothing else."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from shardwright.api.spec import Spec
from shardwright.modelspec.spec import ModelSpec

NOT_PLANNED_WITH: Final = ("paused", "mode", "replan", "restart", "rollout", "readiness")
"""Fields of the spec that say what to do with a plan, not what to plan."""

ONLY_PLANNED_WITH: Final = ("replicas", "objective", "budget", "parallelism")
NOT_IN_PODS: Final = (*(name for name in NOT_PLANNED_WITH if name != "readiness"), *ONLY_PLANNED_WITH)
"""Fields of the spec that change pods of a group through its plan only, or not at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hashes:
    """``whole`` covers all that a plan depends on beside the cluster, ``cut`` the same without the number of replicas.

    ``pods`` covers all that the pods of a group depend on beside the plan: of a model its ``config.json`` alone, so that a
    quantization file that is newly read restarts nothing where it changes no plan.
    """

    whole: str
    cut: str
    pods: str


def hashes_of(spec: Spec, model: ModelSpec, draft: ModelSpec | None, version: str) -> Hashes:
    """Return the hashes of a spec, of the models that it names and of the version of the engine."""
    named = [one for one in (model, draft) if one is not None]
    models = [one.config_hash for one in named]
    return Hashes(
        whole=_hash(spec, models, version, NOT_PLANNED_WITH),
        cut=_hash(spec, models, version, (*NOT_PLANNED_WITH, "replicas")),
        pods=_hash(spec, [one.config_file_hash for one in named], version, NOT_IN_PODS),
    )


def _hash(spec: Spec, models: Iterable[str], version: str, without: Iterable[str]) -> str:
    plain: dict[str, Any] = spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    fields = {name: value for name, value in plain.items() if name not in set(without)}
    config, *drafts = models
    canonical = json.dumps([fields, config, version, *drafts], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
