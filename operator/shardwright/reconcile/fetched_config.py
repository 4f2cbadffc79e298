"""The ConfigMap that keeps a config which was read from the hub: signed, as others may write
ConfigMaps of the namespace.

Anybody can work out its name, and write an owner reference: its content counts if the operator has
signed it, for this resource and under this name.

The Job that reads it is made in ``rendering.fetch_job``, and started by ``fetched``.
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
    """Return the ConfigMap of the findings, signed if there is a key."""
    content = config_map(owner, fetch, found)
    signature, metadata = (keys.sign(KIND, owner.uid, _text(content)), content["metadata"])
    if signature is None:
        return content
    return {
        **content,
        "metadata": {**metadata, "annotations": {**metadata["annotations"], SIGNATURE: signature}},
    }


def is_believed(content: KubernetesObject, owner_uid: str, keys: SigningKeys) -> bool:
    """Return whether a ConfigMap keeps the operator's own reading for the resource with this uid.

    Without keys nobody can tell who wrote it: then it need only say that the resource controls it.
    """
    # Before the signature: a signed ConfigMap that is copied under another owner is not this
    # model's.
    if controller_uid(content) != owner_uid:
        return False
    signature = (content["metadata"].get("annotations") or {}).get(SIGNATURE, "")
    return keys.verify(signature, KIND, owner_uid, _text(content)) if keys else True


def _text(content: KubernetesObject) -> str:
    # The name is signed with the content: it holds the hash of id and revision, so a config of
    # another id cannot be renamed into its place.
    return json.dumps([content["metadata"]["name"], content.get("data") or {}], sort_keys=True)
