"""Names of a ShardedModel's objects, all from one DNS-1035 base.

A name that had to be changed, or that looks like one of ours, gets a hash of the original, so that
two resources of a namespace never share an object name.
"""

import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from shardwright.costs.workload import Phase

STATEFULSET_MAX: Final = 52
"""Characters of a StatefulSet name: its pods' ``controller-revision-hash`` label (name, dash, 10
characters) holds 63.
"""

BASE_MAX: Final = STATEFULSET_MAX - 10
"""Characters of the base: ten are left for ``-<group>`` and what a later generation of a group
appends.
"""

_HASH_DIGITS: Final = 10

_SCRIPTS_DIGITS: Final = 8

_SECRET_DIGITS: Final = 32
"""Of a name that nobody is to guess: 128 bits, as of a random UUID and more (RFC 9562, section
6.9).
"""

MADE_SECRETS: Final = ("token", "ssh")
"""What there is in Secrets whose content the operator makes."""

_NATURAL: Final = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")

GENERATION_MAX: Final = 9999
"""Last generation of a group: with it and three digits of a group the name of a StatefulSet is at
its limit.
"""

_LOOKS_LIKE_OURS: Final = re.compile(rf".*-[0-9a-f]{{{_HASH_DIGITS}}}|.*-[0-9]+(-g[0-9]+)?-peers")

_ENDS: Final = re.compile(
    r"-(network|plan|router(-network)?|(router-scripts|scripts|config)-[0-9a-f]{8}"
    r"|(0|[1-9][0-9]{0,5})(-g[0-9]{1,6})?(-peers|-channel|-gpus-[0-9a-f]{8})?)"
)
"""What follows the model's part of the name of an object of ours that somebody may take back."""

_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,2}")
"""A number of a group: three digits at most."""

_GENERATION: Final = re.compile(r"-g([1-9][0-9]{0,3})$")


_REMEMBERED: Final = 1024
"""Base names kept. Basis: chosen, as many models as were measured together; a reconcile asks for
one some fifty times.
"""


@lru_cache(maxsize=_REMEMBERED)
def base_name(name: str) -> str:
    """Return the DNS-1035 base of a resource's object names, at most :data:`BASE_MAX` characters.

    >>> base_name("llama-405b")
    'llama-405b'
    >>> base_name("qwen2.5-7b")
    'qwen2-5-7b-5f5e975ce4'
    >>> base_name("405b")
    'm-405b-2c19656db1'
    """
    if (
        len(name) <= BASE_MAX
        and _NATURAL.fullmatch(name)
        # Such a name could be that of an object of another resource.
        and not _LOOKS_LIKE_OURS.fullmatch(name)
    ):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_HASH_DIGITS]
    readable = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    # Services have this name, too, and theirs must begin with a letter (DNS-1035).
    if not readable[:1].isalpha():
        readable = f"m-{readable}"
    return f"{readable[: BASE_MAX - _HASH_DIGITS - 1].rstrip('-')}-{digest}"


def group_name(base: str, group: int, generation: int = 0) -> str:
    """Return the name of a group's StatefulSet, which is its group label's value.

    A later ``generation`` is a group made anew because a node holds its pods for ever.

    >>> group_name("llama", 1), group_name("llama", 1, generation=2)
    ('llama-1', 'llama-1-g2')
    """
    return generation_name(f"{base}-{group}", generation)


def group_names(base: str, numbers: Iterable[int]) -> tuple[str, ...]:
    """Return groups' names without generations, by their numbers.

    >>> group_names("llama", (0, 2))
    ('llama-0', 'llama-2')
    """
    return tuple(group_name(base, number) for number in numbers)


def generation_name(group: str, generation: int) -> str:
    """Return the name of a generation of the group first made under this name."""
    return f"{group}-g{generation}" if generation else group


def generation_of(name: str) -> tuple[str, int]:
    """Return a group's name without its generation, and the generation.

    >>> generation_of("llama-1-g2"), generation_of("llama-1")
    (('llama-1', 2), ('llama-1', 0))
    """
    found = _GENERATION.search(name)
    return (name[: found.start()], int(found[1])) if found else (name, 0)


def group_number(base: str, name: str) -> int | None:
    """Return a group's number by its name in any generation, None if it is no name of ours.

    >>> group_number("llama", "llama-1-g2"), group_number("llama", "llama-first")
    (1, None)
    """
    said = generation_of(name)[0].removeprefix(f"{base}-")
    return int(said) if _NUMBER.fullmatch(said) else None


def half_name(pair: str, phase: Phase) -> str:
    """Return the name of a half of a pair.

    >>> half_name("llama", Phase.PREFILL)
    'llama-prefill'
    """
    return f"{pair}-{phase.lower()}"


def pair_of(model: str, phase: Phase) -> str:
    """Return the base of the names of a half's pair, empty if the model's name names none.

    >>> pair_of("llama-decode", Phase.DECODE), pair_of("llama", Phase.DECODE)
    ('llama', '')
    """
    pair = model.removesuffix(half_name("", phase))
    return base_name(pair) if pair not in {"", model} else ""


def follows_from(model: str, name: str) -> bool:
    """Return whether an object of a model could have this name.

    >>> [follows_from("llama", f"llama{end}") for end in ("", "-plan", "-1-g2-peers", "-copy")]
    [True, True, True, False]
    >>> follows_from("llama-decode", "llama")  # the Service of a pair
    True
    """
    base = base_name(model)
    if name in (base, pair_of(model, Phase.DECODE)):
        return True
    return name.startswith(base) and bool(_ENDS.fullmatch(name[len(base) :]))


def number_of(group: str) -> int:
    """Return the number of a group of ours by its name in any generation.

    >>> number_of("llama-1-g2")
    1
    """
    return int(generation_of(group)[0].rpartition("-")[2])


LEADER_VARIABLE: Final = "SHARDWRIGHT_LEADER"
"""Variable of the pods of a group of several: the name by which they find the first of them."""


def peers_service(group: str) -> str:
    """Return the name of the headless Service for a group's ranks; a group of one pod has none."""
    return f"{group}-peers"


def channel_template(group: str) -> str:
    """Return the name of the ResourceClaimTemplate that NVIDIA makes for a ComputeDomain."""
    return f"{group}-channel"


def claim_template(group: str, digest: str) -> str:
    """Return the name of a group's ResourceClaimTemplate for GPUs, whose spec has this digest.

    >>> claim_template("llama-0", "924a7dbda14bed03")
    'llama-0-gpus-924a7dbd'
    """
    return f"{group}-gpus-{digest[:_SCRIPTS_DIGITS]}"


def client_service(base: str) -> str:
    """Return the name of the clients' Service, the disruption budget and the ScaledObject."""
    return base


def network_policy(base: str) -> str:
    """Return the name of a resource's NetworkPolicy; users' may have the resource's own name."""
    return f"{base}-network"


def router(base: str) -> str:
    """Return the name of the Deployment of a model's router."""
    return f"{base}-router"


def router_policy(base: str) -> str:
    """Return the name of the NetworkPolicy of a model's router."""
    return f"{base}-router-network"


def plan_configmap(base: str) -> str:
    """Return the name of the plan of record's ConfigMap."""
    return f"{base}-plan"


def revision_name(base: str, digest: str) -> str:
    """Return the name of the ControllerRevision for a text of this digest.

    >>> revision_name("llama", "924a7dbda14bed03")
    'llama-revision-924a7dbda1'
    """
    return f"{base}-revision-{digest[:_HASH_DIGITS]}"


def scripts_configmap(base: str, digest: str) -> str:
    """Return the name of the ConfigMap with the scripts of this digest.

    Pods keep the scripts they were made with: a changed ConfigMap changes under its mounts.

    >>> scripts_configmap("llama", "924a7dbda14bed03")
    'llama-scripts-924a7dbd'
    """
    return f"{base}-scripts-{digest[:_SCRIPTS_DIGITS]}"


def config_configmap(base: str, digest: str) -> str:
    """Return the name of the ConfigMap for a model's config from the hub, by the model's digest.

    >>> config_configmap("llama", "924a7dbda14bed03")
    'llama-config-924a7dbd'
    """
    return f"{base}-config-{digest[:_SCRIPTS_DIGITS]}"


def fetch_job(base: str, digest: str) -> str:
    """Return the name of the Job that reads a config, by the digest of all it is told.

    >>> fetch_job("llama", "924a7dbda14bed03")
    'llama-fetch-924a7dbd'
    """
    return f"{base}-fetch-{digest[:_SCRIPTS_DIGITS]}"


def made_secret(base: str, content: str, uid: str, seed: str = "") -> str:
    """Return the name of a Secret that the operator fills, unique to the resource's uid.

    Nobody reads Secrets, so one still being deleted looks like a new one, and nobody else may know
    the name before it exists: it cannot be derived without the ``seed``, nor from other names.
    Without a seed it follows from the uid, which everybody sees.

    >>> made_secret("llama", "ssh", "9b1f")
    'llama-ssh-08ce5a20d3'
    >>> made_secret("llama", "ssh", "9b1f", seed="5eed")
    'llama-ssh-ec34bf9c21e89120df46f6cc9fbd6ad9'
    """
    # An installation without a signing key: then whoever sees the uid can derive the name (ADR 18).
    if not seed:
        return f"{base}-{content}-{hashlib.sha256(uid.encode()).hexdigest()[:_HASH_DIGITS]}"
    return f"{base}-{content}-{hashlib.sha256(f'{seed}/{content}'.encode()).hexdigest()[:_SECRET_DIGITS]}"  # noqa: E501 - a name in one piece
