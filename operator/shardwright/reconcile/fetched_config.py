"""Does a ConfigMap hold a config that the operator read from the hub? Anybody can work out its name
and write an owner reference, so its content counts only with the operator's signature for this
resource and name. ``rendering.fetch_job`` makes the Job that reads it, ``fetched`` starts it.
"""

import json
from typing import Any, Final

from shardwright.modelspec.checkpoint_files import CheckpointFiles
from shardwright.reconcile.observed import controller_uid
from shardwright.reconcile.signing import SigningKeys
from shardwright.rendering.bundle import KubernetesObject
from shardwright.rendering.deployment import Owner
from shardwright.rendering.fetch_job import HubFetch, config_map

SIGNATURE: Final = "shardwright.io/config-signature"
"""Annotation that holds the signature of name and content."""

KIND: Final = "FetchedConfig"
"""What kind of text it is, to the signature."""


def fetched_config(
    owner: Owner, fetch: HubFetch, found: CheckpointFiles, keys: SigningKeys
) -> dict[str, Any]:
    """Return the ConfigMap of a config, signed if there is a key."""
    content = config_map(owner, fetch, found)
    signature, metadata = (keys.sign(KIND, owner.uid, _text(content)), content["metadata"])
    if signature is None:
        return content
    return {
        **content,
        "metadata": {**metadata, "annotations": {**metadata["annotations"], SIGNATURE: signature}},
    }


def is_believed(content: KubernetesObject, owner_uid: str, keys: SigningKeys) -> bool:
    """Return whether the operator wrote a ConfigMap for the resource with this uid.

    Without keys nobody can tell who wrote it: then its owner reference is enough.
    """
    # Before the signature: a signed ConfigMap copied under another owner is not this model's.
    if controller_uid(content) != owner_uid:
        return False
    signature = (content["metadata"].get("annotations") or {}).get(SIGNATURE, "")
    return keys.verify(signature, KIND, owner_uid, _text(content)) if keys else True


def _text(content: KubernetesObject) -> str:
    # The name is signed too: it holds the hash of id and revision, so a config of another id cannot
    # be renamed into its place.
    return json.dumps([content["metadata"]["name"], content.get("data") or {}], sort_keys=True)
