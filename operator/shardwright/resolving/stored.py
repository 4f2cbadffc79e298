"""What does a resource ask, as the API server holds it? All that a user writes is read here, in one
function without side effects.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shardwright.api.resource import read_stored
from shardwright.api.settings import Settings
from shardwright.errors import InputError, Problem
from shardwright.hardware.capabilities import Capability
from shardwright.rendering.fetch_job import Fetcher
from shardwright.resolving.question import Question
from shardwright.resolving.subject import Subject, resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class Administration:
    """The part of administrator and cluster for all resources: models by id beside the built-in
    ones, settings, the fetcher of configs from the hub, and what the cluster does not serve.
    """

    catalogue: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    fetcher: Fetcher | None = None
    lacking: tuple[Capability, ...] = ()


def resolve_stored(
    content: Mapping[str, Any],
    config_text: str | None,
    administration: Administration,
    kept_version: str | None = None,
) -> Subject | tuple[Problem, ...]:
    """Return the subject of a resource, or the problems that its user must correct.

    ``config_text`` is the text in the ConfigMap of its config, ``kept_version`` the engine's
    default version that it has had so far.
    """
    try:
        question = Question(
            resource=read_stored(content),
            config_text=config_text,
            kept_version=kept_version,
            catalogue=administration.catalogue,
            settings=administration.settings,
            fetcher=administration.fetcher,
            lacking=administration.lacking,
        )
        return resolve(question)
    except InputError as error:
        return error.problems
