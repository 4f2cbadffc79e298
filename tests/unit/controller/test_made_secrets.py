"""Secrets that the operator makes and cannot read: one that somebody else has made first is never
taken for its own.
"""

from __future__ import annotations

import json

from shardwright.cluster.client import ApiError
from shardwright.cluster.resources import PODS, SECRETS
from shardwright.controller.queue import Key
from shardwright.reconcile.members import mounted_secrets
from shardwright.reconcile.record_object import SigningKeys
from shardwright.rendering.names import made_secret
from tests.harness.api import Manifest
from tests.support.builders_operator import LARGE, NAMESPACE, Parts, run, synced
from tests.support.keys import KEYS

OLD, NEW = KEYS.secrets[0], b"the one that replaces it"


def mounted(parts: Parts) -> set[str]:
    """Return the Secrets that the groups of the model mount."""
    return {
        name
        for group in parts.groups("large")
        for name in mounted_secrets(group["spec"]["template"]["spec"])
    }


def secrets(parts: Parts) -> dict[str, Manifest]:
    return {
        name: item
        for (plural, _, name), item in parts.api.objects.items()
        if plural == SECRETS.plural
    }


def foreseen(parts: Parts, key: Key) -> str:
    """Return what everybody can work out who sees the model: the name of its token without a
    key.
    """
    return made_secret("large", "token", parts.model(key)["metadata"]["uid"])


async def restarted(parts: Parts, key: Key) -> None:
    """Let another process of the operator, of another release or with other keys, look at a group
    that serves.
    """
    await parts.sync()
    await parts.reconcile_again(key)


def test_a_secret_that_somebody_made_under_a_name_that_he_worked_out_is_not_used() -> None:
    async def scenario() -> None:
        parts = await synced(nodes=2)
        key = parts.add_model("large", model=LARGE)
        theirs = {
            "metadata": {"namespace": NAMESPACE, "name": foreseen(parts, key)},
            "data": {"token": "bWluZQ=="},
        }
        parts.api.put(SECRETS, theirs)

        await parts.reconcile(key)

        (name,) = mounted(parts)
        assert name != theirs["metadata"]["name"]
        (owner,) = secrets(parts)[name]["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (parts.model(key)["metadata"]["uid"], True)
        assert secrets(parts)[name]["data"] != theirs["data"]

    run(scenario())


def test_nobody_hears_the_name_of_a_secret_that_could_not_be_made() -> None:
    async def scenario() -> None:
        parts = await synced(nodes=2)
        key = parts.add_model("large", model=LARGE)
        tried: list[str] = []

        for code in (403, 500):

            async def refuse(verb: str, plural: str, code: int = code) -> None:
                if (verb, plural) == ("create", "secrets"):
                    tried.append(parts.api.requests[-1].rpartition("/")[2])
                    raise ApiError(
                        code,
                        "Forbidden",
                        f'secrets "{tried[-1]}" is forbidden: exceeded quota: mine',
                    )

            parts.api.before = refuse
            await parts.reconcile_again(key)

            assert parts.groups("large") == []
            assert parts.condition(key)["message"].count("(name withheld)") == (
                1 if code == 403 else 2
            )
            told = json.dumps(
                [item for (plural, *_), item in parts.api.objects.items() if plural != "nodes"]
            )
            assert tried
            assert not [name for name in tried if name in told]

    run(scenario())


def test_a_new_signing_key_leaves_a_group_its_secret_until_the_old_key_is_gone() -> None:
    async def scenario() -> None:
        parts = await synced(nodes=2)
        key = parts.add_model("large", model=LARGE)
        await parts.reconcile(key)
        parts.run_pods("large")
        first = mounted(parts)

        for keys in (SigningKeys((OLD, NEW)), SigningKeys((NEW, OLD))):
            parts.keys = keys
            await restarted(parts, key)
            assert mounted(parts) == first

        parts.keys = SigningKeys((NEW,))
        await restarted(parts, key)
        assert set(secrets(parts)) == first | mounted(parts)
        assert parts.replicas("large") == [2]

    run(scenario())


def test_a_group_keeps_the_secret_of_an_earlier_release_until_its_next_restart() -> None:
    async def scenario() -> None:
        parts = await synced(nodes=2)
        keys, parts.keys = parts.keys, SigningKeys()
        key = parts.add_model("large", model=LARGE)
        await parts.reconcile(key)
        parts.run_pods("large")
        before = mounted(parts)
        pods = [item for (plural, *_), item in parts.api.objects.items() if plural == PODS.plural]
        assert before == {foreseen(parts, key)}

        parts.keys = keys
        await restarted(parts, key)

        assert mounted(parts).isdisjoint(before)
        assert set(secrets(parts)) == before | mounted(parts)
        assert [
            item for (plural, *_), item in parts.api.objects.items() if plural == PODS.plural
        ] == pods

    run(scenario())
