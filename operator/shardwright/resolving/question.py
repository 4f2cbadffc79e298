"""What is to be resolved? A resource and the texts that it refers to."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from shardwright.api.resource import ShardedModel
from shardwright.api.settings import Settings
from shardwright.hardware.capabilities import Capability
from shardwright.rendering.fetch_job import Fetcher


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A resource and the texts that it refers to.

    ``config_text`` is the text in the ConfigMap that ``configMapRef`` names, or in the one that
    keeps a config from the hub; None if it is not there. ``kept_version`` is the engine's version
    in its plan of record, if the spec leaves it open (None: the newest known). ``catalogue`` are
    the administrator's own models by id, beside the built-in ones: config.json contents;
    ``settings`` are his for all resources. ``fetcher`` reads configs from the hub (None: nothing
    does). ``lacking`` is what the cluster does not serve.
    """

    resource: ShardedModel
    config_text: str | None = None
    kept_version: str | None = None
    catalogue: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    lacking: tuple[Capability, ...] = ()
    fetcher: Fetcher | None = None
