"""The names of the Secrets that the operator makes: so that nobody else can make one of that name
first.

Whether a Secret exists is asked by creating it, and nobody reads its content: one that somebody had
made before would count as ours. Its name therefore follows from the operator's signing key, and is
told to nobody before the Secret exists.
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
    """Return the seed of the names. It is empty without a key: then the names follow from the uid,
    and can be foreseen.

    A new key gives new names. The ones that the groups have already stay for as long as one of the
    keys gives them.
    """
    base = names.base_name(owner.name)
    seeds = keys.signatures(KIND, owner.uid, "")
    mounted = {
        name
        for live in stateful_sets
        for name in mounted_secrets(live["spec"].get("template", {}).get("spec", {}))
    }
    kept = (seed for seed in seeds if not mounted.isdisjoint(_names(base, owner.uid, seed)))
    # The seed of the mounted Secrets goes before the newest: another name would change the template
    # of each group (ADR 18).
    return next(kept, seeds[0] if seeds else "")


def _names(base: str, uid: str, seed: str) -> frozenset[str]:
    return frozenset(names.made_secret(base, content, uid, seed) for content in names.MADE_SECRETS)
