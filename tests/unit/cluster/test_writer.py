"""The writer: what is refused is told and holds up only what needs it, and what starts pods is
tried first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from shardwright.cluster.client import ApiError, Client, NotLeadingError
from shardwright.cluster.resources import CONTROLLER_REVISIONS, SHARDED_MODELS, STATEFUL_SETS
from shardwright.cluster.writer import CARRY_OUT_SECONDS, WELL_SECONDS, Writer
from shardwright.reconcile.snapshot import Outcome, Refusal
from shardwright.reconcile.writes import (
    Apply,
    Create,
    CreateKey,
    Delete,
    DropRevision,
    DryRunPod,
    HandOver,
    KeepRevision,
    Patch,
    Why,
    Write,
    pod_of,
)
from tests.support.builders_operator import Hand
from tests.support.builders_reconcile import OWNER_UID, rendered, service, stateful_set
from tests.support.memory_api import MemoryApi
from tests.support.scripted_api import Answer, serving


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardwright.cluster.client.RETRY_DELAYS_SECONDS", (0.001, 0.001, 0.001))


def carry_out(client: Client, *writes: Write) -> Outcome:
    return asyncio.run(Writer(client, lambda _: None).carry_out(writes))


def refused(client: Client, *writes: Write) -> Refusal:
    """Return why the only write that is not carried out is not."""
    (refusal,) = carry_out(client, *writes).refused
    return refusal


STORED = {**service(), "metadata": {**service()["metadata"], "uid": "u"}}


def without_the_scheduling_group() -> dict[str, Any]:
    """Return what an API server makes of :func:`gang` that does not know the field."""
    return stateful_set()


def gang() -> dict[str, Any]:
    item = stateful_set()
    item["spec"]["template"]["spec"]["schedulingGroup"] = {"podGroupName": "llama-0-2"}
    return item


def test_a_group_that_would_lose_a_field_is_not_created() -> None:
    with serving(Answer(201, without_the_scheduling_group())) as (api, client):
        refusal = refused(client, Create(content=gang()))
        assert [path.partition("?")[2] for _, path, _ in api.requests] == [
            "fieldManager=shardwright&dryRun=All"
        ]
    assert refusal.problem is not None
    assert refusal.problem.sentence() == (
        "StatefulSet llama-0 must be stored as it is sent, but the API server drops "
        "spec.template.spec.schedulingGroup; "
        "turn on the feature gate GenericWorkload (in Kubernetes 1.36 GangScheduling, too), or "
        "choose another "
        "spec.placement.scheduler"
    )


def test_a_group_whose_template_is_new_is_tried_before_it_is_stopped_for_it() -> None:
    live = Answer(body=stateful_set(revision="r0"))
    content = {**gang(), "spec": {**gang()["spec"], "replicas": 0}}
    with serving(live, Answer(body=without_the_scheduling_group())) as (api, client):
        refusal = refused(client, Apply(content=content, uid="u", why=Why.ROLLOUT))
        assert ["dryRun=All" in path for _, path, _ in api.requests] == [False, True]
    assert refusal.problem is not None
    assert refusal.problem.code == "FieldDropped"


FORBIDDEN = (
    'pods "llama-0-x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true'
)


def test_a_group_whose_pods_the_namespace_keeps_out_is_not_created() -> None:
    forbids = Answer(403, {"reason": "Forbidden", "message": FORBIDDEN})
    with serving(Answer(201, stateful_set()), forbids) as (api, client):
        refusal = refused(client, Create(content=stateful_set()))
        assert ["dryRun=All" in path for _, path, _ in api.requests] == [True, True]
        assert api.requests[1][1].startswith("/api/v1/namespaces/models/pods?")
    assert refusal.problem is not None
    assert refusal.problem.code == "PodSecurityForbids"
    assert refusal.problem.sentence() == (
        'a pod of StatefulSet llama-0 violates PodSecurity "restricted:latest": runAsNonRoot != '
        "true, which namespace models "
        "enforces; use a namespace with the level privileged, or leave out what needs it "
        "(spec.pod.network.lockMemory)"
    )


def test_whatever_else_speaks_against_a_pod_now_does_not_keep_its_group_from_being_made() -> None:
    full = Answer(403, {"reason": "Forbidden", "message": "exceeded quota: pods"})
    with serving(Answer(201, stateful_set()), full, Answer(201, stateful_set())) as (api, client):
        assert carry_out(client, Create(content=stateful_set())).refused == ()
        assert [path.partition("?")[0].rpartition("/")[2] for _, path, _ in api.requests] == [
            "statefulsets",
            "pods",
            "statefulsets",
        ]


def test_a_group_whose_template_is_known_is_written_at_once() -> None:
    stored = {**stateful_set(), "metadata": {**stateful_set()["metadata"], "uid": "u"}}
    with serving(Answer(body=stored)) as (api, client):
        carry_out(client, Apply(content=stateful_set(), uid="u"))
        assert [method for method, _, _ in api.requests] == ["GET", "PATCH"]


def test_a_webhook_that_cannot_be_tried_does_not_keep_a_group_from_starting() -> None:
    untried = Answer(
        400, {"reason": "BadRequest", "message": 'admission webhook "x.y" does not support dry run'}
    )
    with serving(untried, untried, Answer(201, stateful_set())) as (api, client):
        assert carry_out(client, Create(content=stateful_set())).refused == ()
        assert ["dryRun=All" in path for _, path, _ in api.requests] == [True, True, False]


def test_a_creation_is_a_post() -> None:
    with serving(Answer(201, service())) as (api, client):
        write = Create(content=service())
        assert carry_out(client, write) == Outcome(written=(write,))
        assert [(method, path) for method, path, _ in api.requests] == [
            ("POST", "/api/v1/namespaces/models/services?fieldManager=shardwright")
        ]


def test_the_first_apply_takes_over_the_fields_of_our_post_and_carries_the_uid() -> None:
    managers = [
        {"manager": "kubectl", "operation": "Update"},
        {"manager": "shardwright", "operation": "Update"},
    ]
    live = Answer(body={"metadata": {"resourceVersion": "7", "managedFields": managers}})
    with serving(live, Answer(body=STORED)) as (api, client):
        carry_out(client, Apply(content=service(), uid="u"))
    (_, took_over, applied) = api.requests
    assert took_over[2] == [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "replace", "path": "/metadata/managedFields/1/operation", "value": "Apply"},
    ]
    assert applied[:2] == (
        "PATCH",
        "/api/v1/namespaces/models/services/llama?fieldManager=shardwright&force=true",
    )
    assert applied[2]["metadata"]["uid"] == "u"


def test_an_object_that_changes_between_our_read_and_our_apply_is_read_again_and_is_no_refusal() -> (
    None
):
    managers = [{"manager": "shardwright", "operation": "Update"}]
    old, new = (
        Answer(body={"metadata": {"resourceVersion": v, "managedFields": managers}})
        for v in ("7", "8")
    )
    changed = Answer(409, {"reason": "Conflict", "message": "the object has been modified"})
    with serving(old, changed, new, Answer(body=STORED)) as (api, client):
        assert carry_out(client, Apply(content=service(), uid="u")).refused == ()
    assert [method for method, _, _ in api.requests] == ["GET", "PATCH", "GET", "PATCH", "PATCH"]
    assert api.requests[3][2][0] == {
        "op": "replace",
        "path": "/metadata/resourceVersion",
        "value": "8",
    }


def test_fields_that_are_not_taken_over_are_not_applied() -> None:
    managers = [{"manager": "shardwright", "operation": "Update"}]
    live = Answer(body={"metadata": {"resourceVersion": "7", "managedFields": managers}})
    changed = Answer(409, {"reason": "Conflict", "message": "the object has been modified"})
    with serving(*(live, changed) * 6) as (api, client):
        write = Apply(content=service(), uid="u")
        assert refused(client, write) == Refusal(
            write=write,
            code=409,
            reason="Conflict",
            message="the object has been modified",
            passes=True,
        )
        assert len(api.requests) == 10


@pytest.mark.parametrize(
    ("replicas", "spec"),
    [(0, {"spec": {"replicas": 0}}), (None, {})],
    ids=["to zero", "annotations alone"],
)
def test_a_patch_changes_exactly_this_stateful_set_and_nothing_else_of_it(
    replicas: int | None, spec: dict[str, Any]
) -> None:
    write = Patch(
        name="llama-0",
        namespace="models",
        uid="u",
        annotations={"a": "1", "gone": None},
        why=Why.FAILURE,
        replicas=replicas,
    )
    stored: list[Mapping[str, Any]] = []
    with serving(Answer(body={"metadata": {"name": "llama-0"}})) as (api, client):
        asyncio.run(Writer(client, stored.append).carry_out([write]))
        body = {"metadata": {"uid": "u", "annotations": {"a": "1", "gone": None}}, **spec}
        assert api.requests == [
            ("PATCH", f"{STATEFUL_SETS.path('models', 'llama-0')}?fieldManager=shardwright", body)
        ]
    assert stored == [
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "llama-0"}}
    ]


def test_a_number_is_handed_over_through_the_scale_of_the_version_that_was_read() -> None:
    write = HandOver(name="llama", namespace="models", version="7", replicas=4)
    stored: list[Mapping[str, Any]] = []
    with serving(Answer(body={})) as (api, client):
        asyncio.run(Writer(client, stored.append).carry_out([write]))
        body = {"metadata": {"resourceVersion": "7"}, "spec": {"replicas": 4}}
        path = SHARDED_MODELS.path("models", "llama", "scale")
        assert api.requests == [("PATCH", f"{path}?fieldManager=shardwright", body)]


def test_a_pod_that_is_only_asked_for_is_not_created_and_why_not_is_told() -> None:
    full = 'pods "llama-0-x" is forbidden: exceeded quota: gpus'
    write = DryRunPod(content=pod_of(stateful_set()), set_uid="s")
    with serving(Answer(403, {"reason": "Forbidden", "message": full})) as (api, client):
        assert refused(client, write) == Refusal(
            write=write, code=403, reason="Forbidden", message=full, passes=False
        )
        ((method, path, _),) = api.requests
    assert (method, path) == (
        "POST",
        "/api/v1/namespaces/models/pods?fieldManager=shardwright&dryRun=All",
    )
    with serving(Answer(201)) as (_, client):
        assert carry_out(client, write) == Outcome(written=(write,))


def test_a_key_is_made_when_its_secret_is_created_and_is_another_one_every_time() -> None:
    secret = rendered("Secret", "llama-ssh", type="shardwright.io/ssh-key")
    with serving(Answer(201)) as (api, client):
        for _ in range(2):
            carry_out(client, CreateKey(content=secret))
        assert [(method, path.partition("?")[0]) for method, path, _ in api.requests] == [
            ("POST", "/api/v1/namespaces/models/secrets")
        ] * 2
        first, second = (body["data"] for _, _, body in api.requests)
    assert set(first) == {"id_ed25519", "id_ed25519.pub"}
    assert first != second
    assert "data" not in secret


def test_a_secret_that_exists_is_the_key_and_any_other_refusal_is_one() -> None:
    write = CreateKey(content=rendered("Secret", "llama-token", type="shardwright.io/group-token"))
    with serving(Answer(409, {"reason": "AlreadyExists", "message": "there is one"})) as (
        api,
        client,
    ):
        assert carry_out(client, write) == Outcome(written=(write,), found=(write,))
        assert [method for method, _, _ in api.requests] == ["POST"]
    with serving(Answer(403, {"reason": "Forbidden", "message": "no"})) as (_, client):
        assert refused(client, write).code == 403


def test_a_revision_that_exists_is_kept_and_any_other_refusal_is_one() -> None:
    write = KeepRevision(content=rendered("ControllerRevision", "llama-revision-0123456789"))
    with serving(Answer(409, {"reason": "AlreadyExists", "message": "there is one"})) as (
        api,
        client,
    ):
        assert carry_out(client, write) == Outcome(written=(write,), found=(write,))
        assert [path.partition("?")[0] for _, path, _ in api.requests] == [
            "/apis/apps/v1/namespaces/models/controllerrevisions"
        ]
    with serving(Answer(403, {"reason": "Forbidden", "message": "no"})) as (_, client):
        assert refused(client, write).code == 403


@pytest.mark.parametrize("owner", [OWNER_UID, "another"])
def test_a_revision_is_deleted_where_it_is_the_models_own(owner: str) -> None:
    api = MemoryApi()
    api.put(CONTROLLER_REVISIONS, rendered("ControllerRevision", "llama-revision-0123456789"))
    write = DropRevision(namespace="models", name="llama-revision-0123456789", owner_uid=owner)
    outcomes = [carry_out(api, write) for _ in range(2)]
    assert [outcome.changed for outcome in outcomes] == [owner == OWNER_UID, False]
    assert (api.find(CONTROLLER_REVISIONS, "models", write.name) is None) is (owner == OWNER_UID)


def test_a_conflict_over_a_quota_says_nothing_of_a_secret_which_is_tried_again() -> None:
    write = CreateKey(content=rendered("Secret", "llama-token", type="shardwright.io/group-token"))
    contended = (
        'Operation cannot be fulfilled on resourcequotas "objects": the object has been modified'
    )
    with serving(Answer(409, {"reason": "Conflict", "message": contended})) as (_, client):
        assert refused(client, write) == Refusal(
            write=write, code=409, reason="Conflict", message=contended, passes=True
        )


@pytest.mark.parametrize(
    ("answer", "passes"),
    [
        (Answer(422), False),
        (Answer(403), False),
        (Answer(400), False),
        (Answer(409), True),
        (Answer(500), True),
        (Answer(drop=True), True),
    ],
    ids=["invalid", "forbidden", "bad", "conflict", "broken", "no answer"],
)
def test_a_refusal_says_whether_it_may_pass(answer: Answer, passes: bool) -> None:  # noqa: FBT001  # a fact
    with serving(answer) as (_, client):
        assert refused(client, Create(content=service())).passes is passes


class Refusing(MemoryApi):
    """Refuses the creation of some plurals; ``until`` notes the deadline."""

    def __init__(self, *plurals: str, error: ApiError | None = None) -> None:
        super().__init__()
        self._plurals = plurals
        self._error = error or ApiError(403, "Forbidden", "exceeded quota")
        self.deadline = 0.0
        self.before = self._refuse

    async def _refuse(self, verb: str, plural: str) -> None:
        if verb == "create" and plural in self._plurals:
            raise self._error

    def until(self, deadline: float) -> Refusing:
        self.deadline = deadline
        return self


def test_what_is_refused_holds_up_what_needs_it_and_nothing_else() -> None:
    api = Refusing("configmaps")
    gone = api.put(STATEFUL_SETS, stateful_set("llama-9"))
    former = api.put(STATEFUL_SETS, stateful_set("llama-8"))
    scripts, budget = rendered("ConfigMap", "scripts"), service("other")
    needs = frozenset({("ConfigMap", "scripts")})
    writes = (
        Create(content=scripts),
        Create(content=stateful_set("llama-0"), needs=needs),
        Apply(content=stateful_set("llama-9"), uid="u", needs=needs),
        Create(content=budget),
        Delete(kind="StatefulSet", namespace="models", name="llama-9", uid=gone["metadata"]["uid"]),
        Delete(
            kind="StatefulSet",
            namespace="models",
            name="llama-8",
            uid=former["metadata"]["uid"],
            needs=frozenset({("StatefulSet", "llama-0")}),
        ),
    )
    outcome = carry_out(api, *writes)
    assert outcome.written == (writes[3], writes[4])
    assert [item.write for item in outcome.refused] == [writes[0]]


def test_what_is_stored_is_told_with_its_kind_and_what_is_refused_is_not() -> None:
    api, stored = Refusing("configmaps"), list[Mapping[str, Any]]()
    writes = [Create(content=rendered("ConfigMap", "scripts")), Create(content=service())]
    asyncio.run(Writer(api, stored.append).carry_out(writes))
    assert [(item["kind"], item["metadata"]["name"]) for item in stored] == [("Service", "llama")]
    assert stored[0]["metadata"]["resourceVersion"]


def test_nothing_more_is_sent_when_another_operator_leads() -> None:
    api = Refusing("services", error=NotLeadingError())
    with pytest.raises(NotLeadingError):
        carry_out(api, Create(content=service()), Create(content=rendered("ConfigMap", "scripts")))
    assert api.requests == ["create services/llama"]


def test_all_writes_of_a_round_end_within_seconds() -> None:
    api, clock = Refusing(), Hand()
    asyncio.run(Writer(api, lambda _: None, clock).carry_out([]))
    assert api.deadline == clock.seconds + CARRY_OUT_SECONDS


class Tries:
    """A writer by a clock that is moved, and whether it tries a StatefulSet before it creates
    it.
    """

    def __init__(self) -> None:
        self.api, self.clock = MemoryApi(), Hand()
        self._writer = Writer(self.api, lambda _: None, self.clock)

    def first(self, content: Mapping[str, Any]) -> bool:
        self.api.requests.clear()
        self.api.objects.clear()
        asyncio.run(self._writer.carry_out([Create(content=content)]))
        verbs = [line.partition(" ")[0] for line in self.api.requests]
        assert verbs in (["dry-run", "dry-run", "create"], ["create"])
        return "dry-run" in verbs


def _with_user(user: int) -> dict[str, Any]:
    item = stateful_set("llama-0")
    item["spec"]["template"]["spec"]["securityContext"] = {"runAsUser": user}
    return item


def test_what_was_tried_a_moment_ago_is_not_tried_again_and_a_minute_later_is() -> None:
    tries = Tries()
    assert tries.first(stateful_set("llama-0"))
    assert not tries.first(stateful_set("llama-1", pods=5, revision="r2"))
    tries.clock.seconds += WELL_SECONDS - 1
    assert not tries.first(stateful_set("llama-0"))
    tries.clock.seconds += 1
    assert tries.first(stateful_set("llama-0"))


def _in_namespace(item: dict[str, Any]) -> None:
    item["metadata"]["namespace"] = "elsewhere"


def _as_root(item: dict[str, Any]) -> None:
    item["spec"]["template"]["spec"]["securityContext"] = {"runAsUser": 0}


def _with_capability(item: dict[str, Any]) -> None:
    item["spec"]["template"]["spec"]["containers"][0]["securityContext"] = {
        "capabilities": {"add": ["IPC_LOCK"]}
    }


def _with_host_network(item: dict[str, Any]) -> None:
    item["spec"]["template"]["spec"]["hostNetwork"] = True


def _with_host_path(item: dict[str, Any]) -> None:
    item["spec"]["template"]["spec"]["volumes"] = [{"name": "a", "hostPath": {"path": "/"}}]


def _with_field(item: dict[str, Any]) -> None:
    item["spec"]["template"]["spec"]["schedulingGroup"] = {"podGroupName": "a"}


@pytest.mark.parametrize(
    "change",
    [_in_namespace, _as_root, _with_capability, _with_host_network, _with_host_path, _with_field],
)
def test_what_the_api_server_may_treat_otherwise_is_tried_by_itself(change: Any) -> None:
    tries = Tries()
    tries.first(stateful_set("llama-0"))
    item = stateful_set("llama-0")
    change(item)
    assert tries.first(item)
    assert not tries.first(item)


def test_the_same_field_with_another_value_that_pod_security_looks_at_is_tried_by_itself() -> None:
    tries = Tries()
    for user in (0, 1000):
        assert tries.first(_with_user(user))


def test_what_was_refused_is_tried_again() -> None:
    tries = Tries()

    async def forbid(verb: str, plural: str) -> None:
        if (verb, plural) == ("dry-run", "pods"):
            raise ApiError(403, "Forbidden", FORBIDDEN)

    allow, tries.api.before = tries.api.before, forbid
    outcome = asyncio.run(tries._writer.carry_out([Create(content=stateful_set())]))
    assert [item.code for item in outcome.refused] == [422]
    tries.api.before = allow
    assert tries.first(stateful_set())


def test_a_bounded_number_of_shapes_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardwright.cluster.writer.WELL_MAX", 2)
    tries = Tries()
    for user in range(3):
        assert tries.first(_with_user(user))
    assert not tries.first(_with_user(2))
    assert tries.first(_with_user(0))
