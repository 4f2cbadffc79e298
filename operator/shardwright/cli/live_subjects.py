"""A cluster's ShardedModel as a question to the planner, with the config that the cluster holds."""

from shardwright.api.resource import ShardedModel
from shardwright.api.settings import Settings
from shardwright.cli.checkpoints import fetched_for, read_unknown
from shardwright.cli.live_models import LiveModel
from shardwright.cluster.client import Client
from shardwright.cluster.resources import CONFIG_MAPS
from shardwright.engines.vllm.releases import kept_default
from shardwright.hardware.capabilities import lacking
from shardwright.modelspec.parse import folder_text
from shardwright.reconcile.observed import controller_uid
from shardwright.resolving.fetching import source_of
from shardwright.resolving.question import Question
from shardwright.resolving.subject import Subject, resolve


async def read_subject(
    client: Client, model: LiveModel, resource: ShardedModel, settings: Settings, *, offline: bool
) -> Subject:
    """Return the question of a resource, with its model's config from the cluster or the hub.

    Raises:
        InputError: it is wrong, or its model is not known.
        UnreachableError: the hub cannot be asked now.
    """
    source = source_of(resource)
    config_text = None
    if source is not None:
        name, key = source
        found = await client.get(CONFIG_MAPS, resource.metadata.namespace, name) or {"metadata": {}}
        if resource.spec.model.config_map_ref or controller_uid(found) == model.owner.uid:
            config_text = folder_text(found.get("data") or {}, key)
    kept = kept_default(model.record.default_of_spec) if model.record else None
    unknown = read_unknown(((None, resource, config_text is not None),), offline=offline)
    question = Question(
        resource=resource,
        config_text=config_text,
        catalogue=fetched_for(resource, unknown),
        kept_version=kept,
        settings=settings,
        lacking=lacking(model.absent_kinds),
    )
    return resolve(question)
