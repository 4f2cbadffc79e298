"""The administrator's policy: names that users may use, and limits of namespaces.

No list admits a variable that the operator itself sets.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints

from shardwright.api.parts import Part, unsaid
from shardwright.api.planner_request import network_of
from shardwright.api.pod_spec import OPEN_KEYS, Pod, domain_of
from shardwright.api.routing import ROUTER_ACCOUNT
from shardwright.api.spec import Executor, Spec
from shardwright.api.violations import read_part
from shardwright.api.weights_source import (
    BUCKETS,
    HUB,
    IMAGE_VOLUME,
    address_of,
    commit_of,
    place_of,
    scheme_of,
)
from shardwright.engines.environment import check_admitted, check_environment
from shardwright.engines.registry import check_admission
from shardwright.errors import InputError, Problem

EVERYTHING: Final = "*"
"""Stands for all names of a list."""

DOCKER_HUB: Final = "docker.io"
"""The registry of an image that names none. Source: distribution/reference,
``ParseNormalizedNamed``.
"""

LIST_MAX: Final = 256
"""Entries of one list. Basis: assumed."""

NAME_OR_ALL: Final = r"^(\*|[a-z0-9]([-a-z0-9.]*[a-z0-9])?)$"

_Prefix = Annotated[
    str, StringConstraints(max_length=512, pattern=r"^(\*|[A-Za-z0-9][A-Za-z0-9._:/@-]*)$")
]
_Namespace = Annotated[
    str, StringConstraints(max_length=63, pattern=r"^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$")
]
_ObjectNames = Annotated[
    list[Annotated[str, StringConstraints(max_length=253, pattern=NAME_OR_ALL)]],
    Field(max_length=LIST_MAX),
]
_ByNamespace = Annotated[dict[_Namespace, _ObjectNames], Field(max_length=LIST_MAX)]
_KeyDomain = Annotated[
    str,
    StringConstraints(max_length=253, pattern=r"^(\*|[A-Za-z0-9]([-A-Za-z0-9._]*[A-Za-z0-9])?)$"),
]
_Collector = Annotated[
    str,
    StringConstraints(
        max_length=512, pattern=r"^[A-Za-z0-9][A-Za-z0-9+.-]*(:[0-9]+|://[A-Za-z0-9._:/-]+)$"
    ),
]
_Variable = Annotated[str, StringConstraints(max_length=128, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


NVIDIA: Final = "nvidia"
"""RuntimeClass that NVIDIA's GPU operator makes: it hands devices to a container, and opens nothing
else.
"""

POLICY: Final = "policy"
"""The setting that all of it is read from."""

_Limit = Annotated[int, Field(ge=0, le=1_000_000_000)]


class NamespaceLimits(Part):
    """Limits on the models of one namespace together; None: any number."""

    models: _Limit | None = Field(default=None, description="ShardedModels that are planned.")
    gpus: _Limit | None = Field(default=None, description="GPUs that their plans keep.")
    waiting: _Limit | None = Field(default=None, description="Plans that wait for GPUs.")


class UserPolicy(Part):
    """Names that users may use in their resources beside those that are open to everybody, and
    limits of namespaces; names in the defaults need no admission.
    """

    admitted_arguments: list[str] = Field(
        default_factory=list, description="Further engine options, without dashes."
    )
    admitted_trace_collectors: list[_Collector] = Field(
        default_factory=list,
        max_length=LIST_MAX,
        description="Addresses that otlp-traces-endpoint may name, as grpc://HOST:PORT. Traces "
        "hold what requests say of themselves.",
    )
    admitted_executors: list[Executor] = Field(
        default_factory=list, description="Executors beside Native."
    )
    admitted_runtime_classes: list[str] = Field(
        default=[NVIDIA], description="RuntimeClasses that pods may have."
    )
    admitted_priority_classes: dict[str, list[str]] = Field(
        default_factory=dict,
        description="PriorityClasses that pods may have, by namespace (*: those that are not "
        "named); all but those of the system if a namespace has no list.",
    )
    admitted_environment: list[_Variable] = Field(
        default_factory=list,
        max_length=LIST_MAX,
        description="Further environment variables, by name.",
    )
    admitted_images: list[_Prefix] = Field(
        default=[EVERYTHING],
        max_length=LIST_MAX,
        description="Registries, repositories and images, *: all.",
    )
    admitted_models: list[_Prefix] = Field(
        default=[EVERYTHING],
        max_length=LIST_MAX,
        description="Organisations and repositories of the hub, and addresses in object "
        "stores, *: all.",
    )
    require_revision: Literal["Off", "Warn", "Deny"] = Field(
        default="Off", description="Off, Warn or Deny, for a model of the hub without a commit."
    )
    admitted_attachment_namespaces: list[_Namespace] = Field(
        default_factory=list,
        max_length=LIST_MAX,
        description="Namespaces whose networks all pods may join, *: all.",
    )
    admitted_lock_memory: list[_Namespace] = Field(
        default_factory=list,
        max_length=LIST_MAX,
        description="Namespaces whose pods may run as root to lock memory, *: all.",
    )
    admitted_service_accounts: _ByNamespace = Field(
        default_factory=dict,
        description="ServiceAccounts that pods may have, "
        "by namespace (*: those that are not named).",
    )
    admitted_secret_volumes: _ByNamespace = Field(
        default_factory=dict,
        description="Secrets that pods may mount, by namespace (*: those that are not named).",
    )
    admitted_pod_keys: list[_KeyDomain] = Field(
        default_factory=list,
        max_length=LIST_MAX,
        description="Domains of labels and annotations that pods may have, *: all.",
    )
    namespace_limits: dict[str, NamespaceLimits] = Field(
        default_factory=dict, description="Limits by namespace (*: those that are not named)."
    )


class _Setting(Part):
    policy: UserPolicy


def read_policy(described: object) -> UserPolicy:
    """Return the setting ``policy``.

    Raises:
        InputError: every violation, with its path.
    """
    if nulls := [*_nulls(described, POLICY)]:
        raise InputError(nulls)
    found = read_part(_Setting, {POLICY: described}).policy
    problems = [
        *(
            replace(problem.under(f"{POLICY}.admittedEnvironment"), remedy="leave it out")
            for problem in check_admitted(found.admitted_environment)
        ),
        *(
            problem.under(f"{POLICY}.admittedArguments")
            for problem in check_admission(found.admitted_arguments)
        ),
    ]
    if problems:
        raise InputError(problems)
    return found


def _nulls(value: object, path: str) -> Iterator[Problem]:
    """Yield every null: as if it were left out, it would admit or limit what nobody has said."""
    if value is None:
        yield Problem(
            code="WrongType",
            path=path,
            what="null",
            limit="must not be null",
            remedy="give it a value, or leave it out",
        )
    elif isinstance(value, Mapping):
        for name, child in value.items():
            yield from _nulls(child, f"{path}.{name}")
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _nulls(child, f"{path}[{index}]")


def check_variables(own: Spec, allowed: Collection[str], policy: UserPolicy) -> Iterator[Problem]:
    """Yield why a resource may not set its variables; ``allowed`` are open to anybody."""
    for index, variable in enumerate(own.engine.env):
        for problem in check_environment((variable.name,), allowed, policy.admitted_environment):
            yield replace(problem, path=f"spec.engine.env[{index}].name")


def check_sources(own: Spec, image: str | None, policy: UserPolicy) -> Iterator[Problem]:
    """Yield why a resource may not run this image (None: the default's) or read its weights."""
    if image is not None:
        yield from check_image(image, policy)
    weights = own.model.weights
    mounted = place_of(weights.uri) if weights and scheme_of(weights) == IMAGE_VOLUME else None
    if mounted and not _is_image_admitted(mounted, policy.admitted_images):
        yield _not_admitted(
            "ImageNotAdmitted",
            "spec.model.weights.uri",
            mounted,
            "admittedImages",
            policy.admitted_images,
        )
    for path, model in _sources(own):
        if not _is_under(model, policy.admitted_models):
            yield _not_admitted(
                "ModelNotAdmitted", path, model, "admittedModels", policy.admitted_models
            )
    if policy.require_revision == "Deny" and lacks_revision(own):
        yield Problem(
            code="RevisionRequired",
            path="spec.model.revision",
            what=own.model.id,
            limit="must be pinned to a commit",
            gap="the administrator requires it (policy.requireRevision: Deny): its publisher can "
            "change what the hub gives tomorrow",
            remedy="set the 40 hexadecimal digits of a commit that you have looked at",
        )


def check_image(image: str, policy: UserPolicy) -> Iterator[Problem]:
    """Yield why the engines of resources may not run an image."""
    if not _is_image_admitted(image, policy.admitted_images):
        yield _not_admitted(
            "ImageNotAdmitted", "spec.engine.image", image, "admittedImages", policy.admitted_images
        )


def check_network(own: Spec, namespace: str, policy: UserPolicy) -> Iterator[Problem]:
    """Yield why pods may not join a network of another namespace, or run as root to lock memory."""
    network = network_of(own)
    for index, attachment in enumerate(network.attachments):
        other = attachment.partition("/")[0] if "/" in attachment else namespace
        if other != namespace and not _names(other, policy.admitted_attachment_namespaces):
            yield Problem(
                code="AttachmentNotAdmitted",
                path=f"spec.pod.network.attachments[{index}]",
                what=attachment,
                limit=f"must be a network of namespace {namespace}",
                gap="others say who joins their networks",
                remedy=f"name one of your own, or have {other} added to "
                "policy.admittedAttachmentNamespaces of the chart",
            )
    if network.lock_memory and not _names(namespace, policy.admitted_lock_memory):
        yield Problem(
            code="LockMemoryNotAdmitted",
            path="spec.pod.network.lockMemory",
            what="true",
            limit=f"is not admitted in namespace {namespace}",
            gap="pods would run as root with IPC_LOCK",
            remedy=f"leave it out, or have {namespace} added to policy.admittedLockMemory "
            "of the chart",
        )


def check_pod(
    own: Spec, namespace: str, defaults: Pod | None, policy: UserPolicy
) -> Iterator[Problem]:
    """Yield why pods may not have accounts, Secrets, labels or annotations not in ``defaults``."""
    pod, given = own.pod or unsaid(Pod), defaults or unsaid(Pod)
    yield from _check_keys("labels", pod.labels or {}, given.labels or {}, policy)
    yield from _check_keys("annotations", pod.annotations or {}, given.annotations or {}, policy)
    at = "spec.pod.serviceAccountName"
    yield from _check_account(
        pod.service_account_name, given.service_account_name, at, namespace, policy
    )
    router = own.routing.service_account_name if own.routing else None
    at = "spec.routing.serviceAccountName"
    yield from _check_account(router, ROUTER_ACCOUNT, at, namespace, policy)
    yield from _check_secrets(pod, given, namespace, policy)


def _check_account(
    account: str | None, given: str | None, path: str, namespace: str, policy: UserPolicy
) -> Iterator[Problem]:
    named = account is None or _is_named(account, namespace, policy.admitted_service_accounts)
    if account is not None and account != given and not named:
        yield Problem(
            code="ServiceAccountNotAdmitted",
            path=path,
            what=account,
            limit=f"is not admitted in namespace {namespace}",
            gap="as only the administrator may admit accounts, which clouds give rights",
            remedy=f"leave it out, or have {account} added to policy.admittedServiceAccounts "
            "of the chart",
        )


def _check_secrets(pod: Pod, given: Pod, namespace: str, policy: UserPolicy) -> Iterator[Problem]:
    mounted = {volume.secret.secret_name for volume in given.volumes or () if volume.secret}
    for index, volume in enumerate(pod.volumes or ()):
        name = volume.secret.secret_name if volume.secret else None
        if (
            name is not None
            and name not in mounted
            and not _is_named(name, namespace, policy.admitted_secret_volumes)
        ):
            yield Problem(
                code="SecretVolumeNotAdmitted",
                path=f"spec.pod.volumes[{index}].secret.secretName",
                what=name,
                limit=f"is not admitted in namespace {namespace}",
                gap="the operator may mount no Secret that its administrator has not named",
                remedy=f"leave it out, or have {name} added to policy.admittedSecretVolumes "
                "of the chart",
            )


def _check_keys(
    kind: str, own: Mapping[str, str], given: Mapping[str, str], policy: UserPolicy
) -> Iterator[Problem]:
    """Yield keys of domains that others trust; default ones may not get other values."""
    for key in sorted(own.keys() - OPEN_KEYS):
        # By domain, not by key: who acts on one key of a domain acts on all of them.
        domain = domain_of(key)
        if not domain or _names(domain, policy.admitted_pod_keys) or given.get(key) == own[key]:
            continue
        yield Problem(
            code="PodKeyNotAdmitted",
            path=f"spec.pod.{kind}.{key}",
            what=key,
            limit="must be of a domain that is admitted: "
            f"{', '.join(sorted(policy.admitted_pod_keys)) or 'none'}",
            gap="as only the administrator may admit keys that "
            "runtimes, networks and clouds act on",
            remedy="use a key without a domain, or have "
            f"{domain} added to policy.admittedPodKeys of the chart",
        )


def _is_named(name: str, namespace: str, admitted: Mapping[str, Collection[str]]) -> bool:
    """Return whether a namespace may use a name; without a list of its own, that of all counts."""
    return _names(name, admitted.get(namespace, admitted.get(EVERYTHING, ())))


def lacks_revision(spec: Spec) -> bool:
    """Return whether the model comes from the hub and no commit is named."""
    return scheme_of(spec.model.weights) == HUB and spec.model.revision is None


def _sources(spec: Spec) -> Iterator[tuple[str, str]]:
    weights = spec.model.weights
    if scheme_of(weights) == HUB:
        yield "spec.model.id", spec.model.id
    if weights and scheme_of(weights) in BUCKETS:
        yield "spec.model.weights.uri", address_of(weights)
    head = spec.engine.speculation and spec.engine.speculation.head
    parts = {
        **({"spec.engine.speculation.head.uri": head.uri} if head else {}),
        **{
            f"spec.model.adapters[{index}].uri": adapter.uri
            for index, adapter in enumerate(spec.model.adapters)
        },
    }
    for path, uri in parts.items():
        if commit := commit_of(uri):
            yield path, commit[0]


def _names(name: str, admitted: Iterable[str]) -> bool:
    return any(entry in (EVERYTHING, name) for entry in admitted)


def _is_under(name: str, admitted: Iterable[str]) -> bool:
    return any(
        entry in (EVERYTHING, name) or name.startswith(entry.rstrip("/") + "/")
        for entry in admitted
    )


def is_image_admitted(image: str, policy: UserPolicy) -> bool:
    """Return whether resources may run an image."""
    return _is_image_admitted(image, policy.admitted_images)


def _is_image_admitted(image: str, admitted: Iterable[str]) -> bool:
    """Return whether an image, its repository or registry is admitted; tags are exact."""
    whole = _with_registry(image)
    repository = _repository(whole)
    for entry in admitted:
        wanted = (
            EVERYTHING
            if entry == EVERYTHING
            else _with_registry(entry.rstrip("/"), of_registry=True)
        )
        if wanted in (EVERYTHING, whole) or _is_under(repository, (wanted,)):
            return True
    return False


def _with_registry(name: str, *, of_registry: bool = False) -> str:
    """Return an image's name with its registry; ``of_registry``: it may name a registry itself.

    >>> (
    ...     _with_registry("vllm/vllm-openai:v0.33.0"),
    ...     _with_registry("registry.example/a"),
    ...     _with_registry("registry.example"),
    ... )
    ('docker.io/vllm/vllm-openai:v0.33.0', 'registry.example/a', 'docker.io/library/registry.example')
    >>> (
    ...     _with_registry("registry.example", of_registry=True),
    ...     _with_registry("vllm", of_registry=True),
    ... )
    ('registry.example', 'docker.io/vllm')
    """  # noqa: E501 - a value in one piece
    host, slash, rest = name.partition("/")
    is_host = "." in host or ":" in host or host == "localhost"
    # Docker's own rule: a first part without dot or colon that is not localhost is no host.
    if is_host and (slash or of_registry):
        return f"{DOCKER_HUB}{slash}{rest}" if host == f"index.{DOCKER_HUB}" else name
    return f"{DOCKER_HUB}/{name}" if slash or of_registry else f"{DOCKER_HUB}/library/{name}"


def _repository(image: str) -> str:
    path, _, last = image.partition("@")[0].rpartition("/")
    return f"{path}/{last.partition(':')[0]}"


def _not_admitted(
    code: str, path: str, what: str, setting: str, admitted: Collection[str]
) -> Problem:
    return Problem(
        code=code,
        path=path,
        what=what,
        limit=f"must be one of, or under, {', '.join(sorted(admitted)) or 'none'}",
        gap="as only the administrator may admit sources of code and weights",
        remedy=f"use one of these, or have it added to policy.{setting} of the chart",
    )
