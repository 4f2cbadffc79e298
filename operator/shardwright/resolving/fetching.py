"""Which config is read from the hub for an unknown model, and which ConfigMap keeps it?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shardwright.api.parts import unsaid
from shardwright.api.pod import Pod
from shardwright.api.resource import ShardedModel
from shardwright.api.spec import Spec
from shardwright.api.weights import HUB, hub_token, scheme_of
from shardwright.errors import Problem
from shardwright.modelspec.catalogue import model_unknown
from shardwright.modelspec.parse import CONFIG_FILE
from shardwright.rendering.deployment import SecretKey
from shardwright.rendering.fetch_job import VARIABLES, HubFetch, config_name
from shardwright.resolving.question import Question

ConfigMapSource = tuple[str, str]
"""Name and key of a ConfigMap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread(Problem):
    """A model that is not known, with a config that can be read from the hub."""

    fetch: HubFetch


def source_of(resource: ShardedModel) -> ConfigMapSource | None:
    """Return the ConfigMap and the key of a resource's config, or of the one to keep a config from
    the hub; None if its spec has it.
    """
    model = resource.spec.model
    reference = model.config_map_ref
    return config_source(
        resource.metadata.name,
        {
            "id": model.id,
            "revision": model.revision,
            "config": model.config,
            "configMapRef": reference and reference.model_dump(),
        },
    )


def config_source(name: str, model: Mapping[str, Any]) -> ConfigMapSource | None:
    """Return the source of a config as :func:`source_of`, for ``spec.model`` as the API server
    holds it. Its faults are reported elsewhere.
    """
    if reference := model.get("configMapRef"):
        named = reference.get("name")
        return (str(named), str(reference.get("key") or CONFIG_FILE)) if named else None
    if model.get("config") is not None or not model.get("id"):
        return None
    return config_name(name, str(model["id"]), model.get("revision")), CONFIG_FILE


def unknown(question: Question, spec: Spec) -> Problem:
    """Return the problem of a model that is in no catalogue: with the files to read, if that is
    wanted and the hub has its weights.

    ``spec`` is the question's with the administrator's defaults in it.
    """
    model, fetcher = (
        spec.model,
        question.fetcher if question.settings.config_fetch.enabled else None,
    )
    problem = model_unknown(model.id, question.catalogue).under("spec.model")
    if fetcher is None or scheme_of(model.weights) != HUB:
        return problem
    token, pod = hub_token(model.weights), spec.pod or unsaid(Pod)
    fetch = HubFetch(
        fetcher=fetcher,
        model=model.id,
        revision=model.revision,
        hub_token=SecretKey(name=token[0], key=token[1]) if token else None,
        environment=tuple(
            (variable.name, variable.value)
            for variable in spec.engine.env
            if variable.name in VARIABLES
        ),
        pull_secrets=tuple(secret.name for secret in pod.image_pull_secrets),
    )
    # dataclasses.replace keeps the class, and Unread is a Problem with one field more.
    parts = {
        name: getattr(problem, name) for name in ("code", "what", "limit", "gap", "remedy", "path")
    }
    return Unread(**parts, fetch=fetch)


def unread(problems: object) -> Unread | None:
    """Return a resource's only problem if it is an unread config, else None."""
    if not isinstance(problems, tuple) or len(problems) != 1:
        return None
    return problems[0] if isinstance(problems[0], Unread) else None
