"""The wiring: who does not lead queues nothing, and a part that fails takes the process with it."""

import asyncio
import logging
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from shardwright.cluster.caches import Caches
from shardwright.cluster.client import NotLeadingError
from shardwright.cluster.resources import PODS
from shardwright.controller.operator import Operator
from shardwright.controller.operator_options import parse_options
from shardwright.errors import InputError
from shardwright.reconcile.record_object import SigningKeys
from tests.harness.waiting import wait_for
from tests.support.scripted_api import Answer, ScriptedApi

MODEL = {"metadata": {"namespace": "models", "name": "llama", "uid": "u", "generation": 1}}


@pytest.fixture
def api() -> Iterator[ScriptedApi]:
    scripted = ScriptedApi(Answer(404))
    yield scripted
    scripted.stop()


class Readers(Caches):
    """Caches that say what they are told to."""

    unread = frozenset[str]()
    refused = frozenset[str]()

    def __init__(self) -> None:
        self.filled = asyncio.Event()


def operator(api: ScriptedApi, *arguments: str) -> Operator:
    return Operator(parse_options([*arguments, "--port=0", "--health-port=0"]), api.access())


def test_who_does_not_lead_queues_nothing(api: ScriptedApi) -> None:
    standby = operator(api)
    standby._handlers.on_model(MODEL, False)
    assert sum(standby._queue.load().depth.values()) == 0


def test_serving_plans_requires_token_review(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(SystemExit), caplog.at_level(logging.CRITICAL):
        parse_options(["--plans"])
    assert "it needs --metrics-authentication=TokenReview" in caplog.text
    assert parse_options(["--plans", "--metrics-authentication=TokenReview"]).plans


def test_who_leads_queues_what_has_changed(api: ScriptedApi) -> None:
    alone = operator(api, "--no-leader-elect")
    alone._handlers.on_model(MODEL, False)
    assert sum(alone._queue.load().depth.values()) == 1


def test_a_part_that_fails_ends_the_process_and_says_why(
    api: ScriptedApi, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        raise KeyError("metadata")

    async def scenario() -> Operator:
        broken = operator(api)
        task = asyncio.create_task(fail())
        task.add_done_callback(broken._job_ended)
        await asyncio.wait_for(broken._stopping.wait(), 10)
        return broken

    with caplog.at_level(logging.CRITICAL):
        assert asyncio.run(scenario())._failed
    assert "KeyError: 'metadata'" in caplog.text


@pytest.mark.parametrize("content", [None, "", "too short\n"], ids=["away", "empty", "too short"])
def test_the_operator_does_not_start_with_unusable_signing_keys(
    api: ScriptedApi, tmp_path: Path, content: str | None
) -> None:
    file = tmp_path / "keys"
    if content is not None:
        file.write_text(content)
    with pytest.raises(InputError) as raised:
        operator(api, f"--signing-keys-file={file}")

    assert [problem.code for problem in raised.value.problems] == ["SigningKeysUnusable"]


def test_who_scrapes_is_asked_about_where_the_administrator_wants_it_and_nowhere_else(
    api: ScriptedApi,
) -> None:
    assert operator(api)._make_scrapers() is None
    judge = operator(api, "--metrics-authentication=TokenReview")._make_scrapers()
    assert judge

    assert (
        asyncio.run(judge("Bearer t", "10.0.0.1")) is HTTPStatus.SERVICE_UNAVAILABLE
    )  # it answers 404 to all
    judge.stop()
    assert [(method, path) for method, path, _ in api.requests] == [
        ("POST", "/apis/authentication.k8s.io/v1/tokenreviews")
    ]


def test_without_a_key_it_makes_none_up_and_says_so(
    api: ScriptedApi, caplog: pytest.LogCaptureFixture
) -> None:
    assert operator(api)._keys.content == SigningKeys()
    assert "plans of record are not signed" in caplog.text


def test_keys_that_are_written_anew_are_used_and_broken_ones_change_nothing(
    api: ScriptedApi, tmp_path: Path
) -> None:
    file = tmp_path / "keys"
    file.write_text(f"{'a' * 32}\n")
    running = operator(api, f"--signing-keys-file={file}")
    file.write_text("")
    assert (running._keys.reload(), running._keys.content) == (False, SigningKeys((b"a" * 32,)))
    file.write_text(f"{'b' * 32}\n{'a' * 32}\n")
    assert (running._keys.reload(), running._keys.content) == (
        True,
        SigningKeys((b"b" * 32, b"a" * 32)),
    )


def test_keys_that_are_changed_in_the_documented_order_verify_at_every_replica_at_every_moment(
    api: ScriptedApi, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    old, new = ("the present key, a token as it is ", "the new key, of openssl rand -hex ")
    files = [tmp_path / "keys-of-one", tmp_path / "keys-of-another"]
    for file in files:
        file.write_text(old)  # a token has no end of line
    replicas = [operator(api, f"--signing-keys-file={file}")._keys for file in files]
    for content in (f"{old}\n{new}\n", f"{new}\n{old}\n", f"{new}\n"):
        for file, keys in zip(files, replicas, strict=True):
            file.write_text(content)  # the kubelet of the other one is late
            caplog.clear()
            assert keys.reload()
            assert "the file of signing keys was read anew" in caplog.text
            for writer in replicas:
                signature = writer.content.sign("K", "u", "t") or ""
                assert all(reader.content.verify(signature, "K", "u", "t") for reader in replicas)

    assert replicas[0].content == SigningKeys((new.strip().encode(),))


class Cluster(ScriptedApi):
    """An API server whose claims are of these owners, one after the other for each reading of both,
    the last for ever; None: they may not be read. It serves nothing else.
    """

    def __init__(self, *owners: str | None) -> None:
        self.owners = list(owners)
        super().__init__(Answer(404), by_path={"selfsubjectaccessreviews": Answer(201)})

    def answer(self, method: str, path: str, body: Any) -> Answer:
        other = super().answer(method, path, body)
        if "/clusterroles" not in path:
            return other
        owner = self.owners[0]
        if "shardwright-namespaces" in path and len(self.owners) > 1:
            self.owners.pop(0)
        if owner is None:
            return Answer(403)
        name = path.partition("metadata.name%3D")[2].partition("&")[0]
        claim = {"name": name, "annotations": {"shardwright.io/installation": owner}}
        return Answer(body={"metadata": {}, "items": [{"metadata": claim}]})


def test_an_operator_that_may_not_read_its_claims_says_so_and_does_not_stand_for_the_lease(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        starting = operator(closed, "--installation=system/ours")
        task = asyncio.create_task(starting.run())
        await asyncio.to_thread(
            wait_for, lambda: "claims cannot be read" in caplog.text, 20, "it to say so"
        )
        starting._stopping.set()
        await task

    closed = Cluster(None)
    asyncio.run(asyncio.wait_for(scenario(), 20))
    closed.stop()
    assert [path for _, path, _ in closed.requests if "leases" in path] == []


@pytest.mark.parametrize(
    ("owners", "options", "began"),
    [
        (("other/theirs",), (), False),
        (("system/ours", "other/theirs"), ("--no-leader-elect",), True),
    ],
    ids=["at the start, before the Lease", "when it begins to lead"],
)
def test_an_operator_whose_nodes_are_for_another_ends_and_says_whose_they_are(
    caplog: pytest.LogCaptureFixture,
    owners: tuple[str, ...],
    options: tuple[str, ...],
    began: bool,  # noqa: FBT001  # a case
) -> None:
    cluster = Cluster(*owners)
    loser = operator(cluster, "--installation=system/ours", *options)
    assert asyncio.run(asyncio.wait_for(loser.run(), 20)) == 1
    cluster.stop()
    assert (
        "ending, for two installations must share neither nodes nor namespaces: nodes without "
        "the label shardwright.io/node-set are not for system/ours: ClusterRole "
        "shardwright-nodes says other/theirs"
    ) in caplog.text
    asked = [path for _, path, _ in cluster.requests]
    assert all("/clusterroles" in path for path in asked) is not began


class WithLease(Cluster):
    """The same with a Lease that nobody holds."""

    def __init__(self, *owners: str | None) -> None:
        super().__init__(*owners)
        self.holders: list[str] = []
        self.lease: dict[str, Any] = {
            "metadata": {"name": "shardwright"},
            "spec": {"holderIdentity": "", "leaseDurationSeconds": 1},
        }

    def answer(self, method: str, path: str, body: Any) -> Answer:
        other = super().answer(method, path, body)
        if "/leases/" not in path:
            return other
        if body:
            self.lease = body
            self.holders.append(body["spec"]["holderIdentity"])
        return Answer(body=self.lease)


LEASE_OF_SECONDS = (
    "--lease-duration-seconds=2",
    "--lease-renew-deadline-seconds=1.5",
    "--lease-retry-seconds=0.2",
)


def test_a_leader_that_cannot_read_its_claims_writes_nothing_and_lets_another_lead(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> int:
        loser = operator(cluster, "--installation=system/ours", *LEASE_OF_SECONDS)
        task = asyncio.create_task(loser.run())
        await asyncio.to_thread(
            wait_for, lambda: "claims cannot be read" in caplog.text, 20, "it to look"
        )
        loser._handlers.on_model(MODEL, False)
        assert sum(loser._queue.load().depth.values()) == 0
        # RuntimeError: on a busy machine it has ended by now.
        with pytest.raises((NotLeadingError, RuntimeError)):
            await loser._client.create(PODS, "models", {})
        return await task

    cluster = WithLease("system/ours", None)
    assert asyncio.run(asyncio.wait_for(scenario(), 30)) == 1
    cluster.stop()
    assert "its claims could not be read for as long as a Lease lasts" in caplog.text
    assert (cluster.holders[0] != "", cluster.holders[-1]) == (True, "")
    assert [
        path
        for method, path, _ in cluster.requests
        if method != "GET" and "/leases/" not in path and "accessreviews" not in path
    ] == []


def test_a_leader_whose_claims_hold_may_write() -> None:
    async def scenario() -> int:
        leader = operator(cluster, "--installation=system/ours", *LEASE_OF_SECONDS)
        task = asyncio.create_task(leader.run())
        await asyncio.to_thread(wait_for, leader._leads, 20, "it to lead")
        leader._stopping.set()
        return await task

    cluster = WithLease("system/ours")
    assert asyncio.run(asyncio.wait_for(scenario(), 30)) == 0
    cluster.stop()


def test_when_a_namespace_can_be_read_that_could_not_before_all_models_are_listed_at_once(
    api: ScriptedApi,
) -> None:
    """Not some minutes later; the metric says of each watched namespace how it stands."""

    async def scenario() -> list[tuple[bool, frozenset[str], float | None]]:
        watching, caches, seen = operator(api, "--watch-namespaces=a,b"), Readers(), []
        for unread, refused in (
            ({"a", "b"}, {"b"}),
            ({"b"}, {"b"}),
            (set[str](), set[str]()),
            (set[str](), {"a"}),
        ):
            caches.unread, caches.refused = frozenset(unread), frozenset(refused)
            watching._sync_due.clear()
            watching._note_namespaces(caches)
            read = watching._metrics.registry.get_sample_value(
                "shardwright_watched_namespace_readable", {"namespace": "b"}
            )
            seen.append((watching._sync_due.is_set(), watching._cache.unread, read))
            caches.filled.set()
        return seen

    assert asyncio.run(scenario()) == [
        (False, frozenset(), 0.0),  # nothing is told of a namespace before the first of all LISTs
        (True, frozenset({"b"}), 0.0),
        (True, frozenset(), 1.0),
        (False, frozenset(), 1.0),  # what was read once stands
    ]
