"""The question: a resource, and the texts that it refers to.

Nothing of it is resolved yet: its names may stand for nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from shardwright.api.resource import ShardedModel
from shardwright.api.settings import Settings
from shardwright.rendering.fetch_job import Fetcher


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A resource and the texts that it refers to.

    ``config_text`` is what stands in the ConfigMap that ``configMapRef`` names, or in the one in
    which a config is kept that was read from the hub; None if it is not there. ``kept_version`` is
    the engine's version that its plan of record has where the spec leaves it open (None: the newest
    known). ``catalogue`` are the administrator's own models by id, beside the built-in ones:
    config.json contents; ``settings`` what the administrator says for all resources. ``fetcher`` is
    what reads configs from the hub (None: nothing).
    """

    resource: ShardedModel
    config_text: str | None = None
    kept_version: str | None = None
    catalogue: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    fetcher: Fetcher | None = None
