"""Carries out decisions: creates, applies our fields by force, deletes by uid.

The content of Secrets the operator creates: made and sent once, then only the kubelet's.

A new ssh key for a group whose leader starts its followers' ranks; it cannot be reread.
"""

import json
import re
import secrets
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from time import monotonic
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from shardwright.cluster.client import (
    APPLY_PATCH,
    FIELD_MANAGER,
    JSON_PATCH,
    MERGE_PATCH,
    ApiError,
    Client,
    NotLeadingError,
    Urgency,
)
from shardwright.cluster.kinds import BY_KIND
from shardwright.cluster.resources import (
    CONTROLLER_REVISIONS,
    JOBS,
    PODS,
    SECRETS,
    SHARDED_MODELS,
    Resource,
)
from shardwright.errors import Problem
from shardwright.reconcile.drift import dropped_fields, template_hash
from shardwright.reconcile.fetched import ALREADY_EXISTS
from shardwright.reconcile.observed import STATEFUL_SET, controller_uid
from shardwright.reconcile.snapshot import Outcome, Refusal
from shardwright.reconcile.wording import field_dropped, forbids_pods, pod_security_forbids
from shardwright.reconcile.write_cause import Origin, WriteCause, changed_by, fields_named
from shardwright.reconcile.writes import (
    HIDDEN_NAME,
    Adopt,
    Apply,
    Create,
    CreateKey,
    Delete,
    DropRevision,
    DryRunPod,
    HandOver,
    KeepRevision,
    ObjectKey,
    Patch,
    StartJob,
    Why,
    Write,
    ended_groups,
    kind_of,
    pod_of,
    written_kind,
    written_name,
)
from shardwright.rendering import group_token, ssh
from shardwright.rendering.bundle import KubernetesObject


def key_pair() -> tuple[str, str]:
    """Return an unencrypted OpenSSH Ed25519 key, and its public key's line."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    return private, f"{public} shardwright\n"


TOKEN_BYTES: Final = 32
"""Of a group's token: as many as HMAC-SHA256 puts out (RFC 2104, section 3)."""


def _ssh_key() -> dict[str, str]:
    private, public = key_pair()
    return {ssh.PRIVATE_KEY: private, ssh.PUBLIC_KEY: public}


def _group_token() -> dict[str, str]:
    return {group_token.FILE: secrets.token_hex(TOKEN_BYTES)}


# By type, not by name: names follow from the operator's key, and nothing can be read off them.
_MADE: Final[Mapping[str, Callable[[], dict[str, str]]]] = {
    ssh.SECRET_TYPE: _ssh_key,
    group_token.SECRET_TYPE: _group_token,
}


def new_content(secret_type: str) -> dict[str, str]:
    """Return the content of a new Secret of one of our types: file names to texts."""
    return _MADE[secret_type]()


OWNING_ATTEMPTS: Final = 5  # an object's controller writes its status at the same time


CARRY_OUT_SECONDS: Final = 12.0
"""Seconds for all writes of one round, so that a hanging one is soon in the status. Basis: assumed;
a webhook answers within its 10 s, or the API server answers for it.
"""

REFUSALS: Final = frozenset({400, 403, 422})
"""Codes by which the API server refuses an object for good, until somebody changes something."""

WELL_SECONDS: Final = 60.0
"""How long a trial holds for objects of the same fields. Basis: assumed; gates and policies change
rarely, and the answer shows what is not kept.
"""

WELL_MAX: Final = 1024  # shapes of objects that are remembered

NO_DRY_RUN: Final = "does not support dry run"  # says the API server of a webhook


class RefusedError(ApiError):
    """The API server takes an object that would never run; ``problem`` says why."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(HTTPStatus.UNPROCESSABLE_ENTITY.value, problem.code, problem.sentence())


class Writer:
    """Carries out writes and passes each stored object to ``on_stored``.

    A trial that went well a moment ago is not repeated.
    """

    def __init__(
        self,
        client: Client,
        on_stored: Callable[[KubernetesObject], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._client = client
        self._on_stored = on_stored
        self._clock = clock
        self._tried: OrderedDict[int, float] = OrderedDict()

    async def carry_out(self, writes: Sequence[Write]) -> Outcome:
        """Write in order; a refused write holds up only those that need it.

        A write that starts pods is tried first: a group would start even without a field that the
        API server drops.

        Raises:
            NotLeadingError: another operator leads.
        """
        # One time for all: a webhook that hangs would take its 10 s of each write.
        client = self._client.until(self._clock() + CARRY_OUT_SECONDS)
        written: list[Write] = []
        refused: list[Refusal] = []
        found: list[Write] = []
        missing: set[ObjectKey] = set()
        for write in writes:
            if _waits(write, missing):
                missing.add((written_kind(write), written_name(write)))
                continue
            try:
                carried = await self._carry_out(
                    client.at(Urgency.REPAIR) if ended_groups([write]) else client, write
                )
            # Not a refusal of this write: nothing more may be written at all.
            except NotLeadingError:
                raise
            except ApiError as error:
                refused.append(_refusal(write, error))
                # A refused object holds up all that need it, and those hold up others.
                missing.add((written_kind(write), written_name(write)))
            else:
                written.append(carried or write)
                if carried is None:
                    found.append(write)
        return Outcome(written=tuple(written), refused=tuple(refused), found=tuple(found))

    async def _carry_out(self, client: Client, write: Write) -> Write | None:
        """Return the write, with what was learnt of its cause; None: there was nothing to make."""
        made = True
        match write:
            case Create():
                await self._create(client, write)
            case CreateKey():
                made = await _create_key(client, write)
            case Apply():
                return await self._apply(client, write)
            case Patch() | Adopt():
                self._on_stored(await _patch(client, write))
            case DryRunPod():
                await _ask_for_pod(client, write.content)
            case KeepRevision() | StartJob():
                made = await _create_named(client, write)
            case DropRevision():
                made = await _drop_revision(client, write)
            case HandOver():
                await _hand_over(client, write)
            case Delete():
                resource = BY_KIND[write.kind]
                await client.delete(
                    resource,
                    write.namespace,
                    write.name,
                    uid=write.uid,
                    grace_seconds=write.grace_seconds,
                )
        return write if made else None

    async def _create(self, client: Client, write: Create) -> None:
        resource = BY_KIND[kind_of(write.content)]
        content = write.content

        async def send(*, dry_run: bool) -> KubernetesObject:
            return await client.create(
                resource, content["metadata"]["namespace"], content, dry_run=dry_run
            )

        await self._keeping_all(
            # Only objects that start pods are tried; all others are compared with the stored ones.
            client,
            send,
            content,
            try_first=content["kind"] == STATEFUL_SET,
        )

    async def _apply(self, client: Client, write: Apply) -> Apply:
        """Apply with the uid as a precondition: an object that replaced ours answers 409.

        Return the write with who undid ours, as far as the API server says it.
        """
        metadata = {**write.content["metadata"], "uid": write.uid}
        resource = BY_KIND[kind_of(write.content)]
        path = resource.path(metadata["namespace"], metadata["name"])
        # Fields of our POST belong to an Update of ours; an apply that leaves one out would not
        # remove it.
        live = await _owned_by_apply(client, resource, path, metadata)
        content = {**write.content, "metadata": metadata}

        async def send(*, dry_run: bool) -> KubernetesObject:
            return await client.patch(resource, path, content, APPLY_PATCH, dry_run=dry_run)

        await self._keeping_all(
            client,
            send,
            content,
            # A write of the same template brings no other pods, so it need not be tried.
            try_first=template_hash(live) != template_hash(content),
        )
        if write.why is not Why.DRIFT or not (by := changed_by(live, write.fields, FIELD_MANAGER)):
            return write
        return replace(write, cause=WriteCause(Origin.UNDONE, fields_named(write.fields), by))

    async def _keeping_all(
        self,
        client: Client,
        send: Callable[..., Awaitable[KubernetesObject]],
        content: KubernetesObject,
        *,
        try_first: bool,
    ) -> None:
        """Send an object and check that all was kept; a failed trial changes nothing."""
        if try_first and not self._was_well(shape := _shape(content)):
            _check(content, await _tried(send, content))
            await _try_pod(client, content)
            self._note_well(shape)
        stored = await send(dry_run=False)
        # Checked again: a gate may have been turned off since the trial.
        _check(content, stored)
        self._on_stored({"apiVersion": content["apiVersion"], "kind": content["kind"], **stored})

    def _was_well(self, shape: int) -> bool:
        at = self._tried.get(shape)
        return at is not None and self._clock() - at < WELL_SECONDS

    def _note_well(self, shape: int) -> None:
        self._tried[shape] = self._clock()
        while len(self._tried) > WELL_MAX:
            self._tried.popitem(last=False)


def _waits(write: Write, missing: set[ObjectKey]) -> bool:
    """Return whether something that a write needs was refused."""
    if isinstance(write, CreateKey):
        return bool(write.asked) and write.asked.issubset(missing)
    needs = getattr(write, "needs", frozenset[ObjectKey]())
    return not missing.isdisjoint(needs)


def _shape(content: KubernetesObject) -> int:
    """Return what decides whether an object is admitted: namespace, fields, pods' security."""
    contexts = json.dumps(
        [_security(content["spec"]["template"]["spec"]), content["metadata"]["namespace"]],
        sort_keys=True,
    )
    return hash((contexts, frozenset(_paths(content, ""))))


def _security(pod: KubernetesObject) -> list[Any]:
    containers = [*(pod.get("initContainers") or ()), *(pod.get("containers") or ())]
    contexts = [
        pod.get("securityContext"),
        *(container.get("securityContext") for container in containers),
    ]
    host = {
        field: pod.get(field) for field in ("hostNetwork", "hostPID", "hostIPC", "runtimeClassName")
    }
    ports = [
        port.get("hostPort") for container in containers for port in container.get("ports") or ()
    ]
    volumes = [sorted(volume) for volume in pod.get("volumes") or ()]
    return [contexts, host, ports, volumes]


def _paths(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for field, inner in value.items():
            yield from _paths(inner, f"{path}.{field}")
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for inner in value:
            yield from _paths(inner, f"{path}[]")
    else:
        yield path


_OWN_END: Final = re.compile(r"[0-9A-Fa-f.:\[\]]+:\d+->")
"""The near end of a connection, as Go quotes it (``read tcp 10.0.0.7:53412->10.0.0.9:443``)."""


def _lasting(message: str) -> str:
    """Return a message without what differs from one try to the next.

    >>> _lasting("read tcp 10.0.0.7:53412->10.0.0.9:443: connection reset by peer")
    'read tcp 10.0.0.9:443: connection reset by peer'
    """
    return _OWN_END.sub("", message)


def _refusal(write: Write, error: ApiError) -> Refusal:
    problem = error.problem if isinstance(error, RefusedError) else None
    refused = error.code in REFUSALS
    return Refusal(
        write=write,
        code=error.code,
        reason=error.reason,
        message=_lasting(str(error)),
        passes=not refused,
        problem=problem,
    )


async def _patch(client: Client, write: Patch | Adopt) -> dict[str, Any]:
    resource = BY_KIND[written_kind(write)]
    body: dict[str, Any] = (
        {"metadata": {"ownerReferences": [write.owner]}}
        if isinstance(write, Adopt)
        else {
            "metadata": {"annotations": dict(write.annotations)},
            **({} if write.replicas is None else {"spec": {"replicas": write.replicas}}),
        }
    )
    # The uid in a merge patch is a precondition: of another object of this name it would be a
    # change, which is refused.
    body["metadata"]["uid"] = write.uid
    path = resource.path(write.namespace, write.name)
    stored = await client.patch(resource, path, body, MERGE_PATCH)
    return {"apiVersion": resource.api_version, "kind": resource.kind, **stored}


async def _create_key(client: Client, write: CreateKey) -> bool:
    """Return whether a key was made: one that exists already is the key, as nobody else was told
    its name.
    """
    try:
        await client.create(
            SECRETS, write.content["metadata"]["namespace"], with_new_key(write.content)
        )
    except ApiError as error:
        if error.reason == ALREADY_EXISTS:
            return False
        if (name := written_name(write)) not in str(error):
            raise
        # Whoever knew the name before the Secret exists could make it first (ADR 18), and refusals
        # end in the status.
        said = str(error).replace(name, HIDDEN_NAME)
        raise ApiError(error.code, error.reason, said, error.retry_after_seconds) from None
    return True


async def _create_named(client: Client, write: KeepRevision | StartJob) -> bool:
    """Create an object named by its content, and return whether it was made: an existing one of its
    name is the same.
    """
    try:
        resource = JOBS if isinstance(write, StartJob) else CONTROLLER_REVISIONS
        await client.create(resource, write.content["metadata"]["namespace"], write.content)
    except ApiError as error:
        if error.reason != ALREADY_EXISTS:
            raise
        return False
    return True


async def _drop_revision(client: Client, write: DropRevision) -> bool:
    """Delete a revision of ours, and return whether there was one."""
    found = await client.get(
        # Read first: the name alone does not tell its owner. Its content is not needed for that.
        CONTROLLER_REVISIONS,
        write.namespace,
        write.name,
        metadata_only=True,
    )
    if found is None or controller_uid(found) != write.owner_uid:
        return False
    await client.delete(
        CONTROLLER_REVISIONS, write.namespace, write.name, uid=found["metadata"]["uid"]
    )
    return True


async def _hand_over(client: Client, write: HandOver) -> None:
    # With the version: a number that somebody has set in between is theirs.
    body = {"metadata": {"resourceVersion": write.version}, "spec": {"replicas": write.replicas}}
    path = SHARDED_MODELS.path(write.namespace, write.name, "scale")
    await client.patch(SHARDED_MODELS, path, body, MERGE_PATCH)


def with_new_key(secret: KubernetesObject) -> dict[str, Any]:
    """Return a Secret with a new key in it."""
    content = new_content(secret["type"])
    return {
        **secret,
        "data": {name: b64encode(text.encode()).decode() for name, text in content.items()},
    }


async def _ask_for_pod(client: Client, pod: KubernetesObject) -> None:
    # One of its name has been let in meanwhile: it is there by now, or ends.
    try:
        await client.create(PODS, pod["metadata"]["namespace"], pod, dry_run=True)
    except ApiError as error:
        if error.reason != ALREADY_EXISTS:
            raise


async def _try_pod(client: Client, content: KubernetesObject) -> None:
    """Ask whether Pod Security would admit a StatefulSet's pods: it refuses pods, not their makers.

    Whatever else speaks against the pod today (a quota, a webhook) may be gone tomorrow.
    """
    try:
        await _ask_for_pod(client, pod_of(content))
    except ApiError as error:
        # Pod Security judges pods, not StatefulSets: the latter would be taken, and no pod ever
        # come.
        if forbids_pods(str(error)):
            raise RefusedError(pod_security_forbids(content, str(error))) from error


async def _tried(
    send: Callable[..., Awaitable[KubernetesObject]], content: KubernetesObject
) -> KubernetesObject:
    """Return the object as it would be stored; a webhook without dry run is not asked."""
    try:
        return await send(dry_run=True)
    except ApiError as error:
        if NO_DRY_RUN not in str(error):
            raise
        return content


def _check(sent: KubernetesObject, stored: KubernetesObject) -> None:
    if dropped := dropped_fields(sent, stored):
        raise RefusedError(field_dropped(sent, dropped))


async def _owned_by_apply(
    client: Client, resource: Resource, path: str, metadata: Mapping[str, Any]
) -> KubernetesObject:
    for attempts_left in reversed(range(OWNING_ATTEMPTS)):
        live = await client.get(resource, metadata["namespace"], metadata["name"]) or {
            "metadata": {}
        }
        try:
            await _own_by_apply(client, resource, path, live)
            break
        except ApiError as error:
            if error.code != HTTPStatus.CONFLICT or not attempts_left:
                raise
    return live


async def _own_by_apply(
    client: Client, resource: Resource, path: str, live: KubernetesObject
) -> None:
    """Turn the field ownership of our POST, and of our patches since, into an apply's.

    Otherwise no apply could remove a field again. A manager has one entry of each operation: fields
    that an apply of ours owns already are merged with the added ones. The version read is replaced,
    not tested: out of date it answers 409, a failed test 422 as a real refusal does.
    """
    managers = live["metadata"].get("managedFields") or ()
    ours = {
        manager["operation"]: index for index, manager in enumerate(managers) if _is_ours(manager)
    }
    if "Update" not in ours:
        return
    fields = f"/metadata/managedFields/{ours['Update']}"
    operations: list[dict[str, Any]] = [
        {"op": "replace", "path": f"{fields}/operation", "value": "Apply"}
    ]
    if "Apply" in ours:
        applied, updated = (
            managers[ours[operation]].get("fieldsV1") or {} for operation in ("Apply", "Update")
        )
        both = {
            "op": "replace",
            "path": f"/metadata/managedFields/{ours['Apply']}/fieldsV1",
            "value": _union(applied, updated),
        }
        # Replaced before anything is removed: removing moves all later indices.
        operations = [both, {"op": "remove", "path": fields}]
    version = {
        "op": "replace",
        "path": "/metadata/resourceVersion",
        "value": live["metadata"]["resourceVersion"],
    }
    await client.patch(resource, path, [version, *operations], JSON_PATCH)


def _is_ours(manager: Mapping[str, Any]) -> bool:
    return manager.get("manager") == FIELD_MANAGER and not manager.get("subresource")


def _union(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return the union of two sets of fields, nested as in ``fieldsV1``."""
    shared = {field: _union(one[field], other[field]) for field in one.keys() & other.keys()}
    return {**one, **other, **shared}
