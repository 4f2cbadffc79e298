"""How are the Secrets named that the operator makes, so that nobody else can make one first?

Whether a Secret exists is found out by creating it, and its content is never read: one made before
by somebody else would count as ours. So its name follows from the operator's signing key, and is
published nowhere before the Secret exists.
"""

from collections.abc import Iterable
from typing import Final

from shardwright.reconcile.members import mounted_secrets
from shardwright.reconcile.signing import SigningKeys
from shardwright.rendering import names
from shardwright.rendering.bundle import KubernetesObject
from shardwright.rendering.deployment import Owner

KIND: Final = "made secrets"
"""What is signed: nothing that is published is of this kind."""


def seed_of(keys: SigningKeys, owner: Owner, stateful_sets: Iterable[KubernetesObject]) -> str:
    """Return the seed of the names; empty without a key: then names can be foreseen.

    A new key gives new names, but mounted Secrets keep theirs while one of the keys gives them.
    """
    base = names.base_name(owner.name)
    seeds = keys.signatures(KIND, owner.uid, "")
    mounted = {
        name
        for live in stateful_sets
        for name in mounted_secrets(live["spec"].get("template", {}).get("spec", {}))
    }
    kept = (seed for seed in seeds if not mounted.isdisjoint(_names(base, owner.uid, seed)))
    # Another name would change the template of each group (ADR 18).
    return next(kept, seeds[0] if seeds else "")


def _names(base: str, uid: str, seed: str) -> frozenset[str]:
    return frozenset(names.made_secret(base, content, uid, seed) for content in names.MADE_SECRETS)
