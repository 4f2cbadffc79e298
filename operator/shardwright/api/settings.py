"""The administrator's settings for all resources: defaults for engine and pods, and users' limits.

They never change a resource: its spec is merged with the defaults before planning, its own fields
win, and its status names the fields that came from the defaults.

Whether configs nobody has given are read from the hub, by a Job in the model's namespace.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, Final

from pydantic import Field, StringConstraints
from pydantic.alias_generators import to_camel

from shardwright.api import node_settings
from shardwright.api.admission import POLICY, NamespaceLimits, UserPolicy, read_policy
from shardwright.api.group_version import API_VERSION, KIND
from shardwright.api.network_policy import NETWORK_POLICY, NetworkPolicies, read_network_policies
from shardwright.api.node_settings import AUTOSCALED_POOLS, GPUS, read_gpus, read_pools
from shardwright.api.parts import IMAGE, APart, Part, unsaid
from shardwright.api.pod_spec import Pod, Resources, lie_together
from shardwright.api.resource import parse_manifest
from shardwright.api.spec import OF_ONE_MODEL, Engine, Spec
from shardwright.api.violations import read_part
from shardwright.errors import InputError, Problem
from shardwright.hardware.gpus import Stated
from shardwright.hardware.provisioning import AutoscaledPool

CONFIG_FETCH: Final = "configFetch"
ROUTER: Final = "router"


class ConfigFetch(Part):
    """The setting as a whole."""

    enabled: bool = Field(default=False, description="Whether they are read.")


class RouterSetting(Part):
    """The routers of all models."""

    image: Annotated[str, StringConstraints(max_length=512, pattern=f"^$|{IMAGE}")] = Field(
        default="", description="Image of routers; empty: none, and models get no router."
    )


class _Router(Part):
    router: RouterSetting


def read_router(described: object) -> RouterSetting:
    """Return the setting ``router``.

    Raises:
        InputError: every violation, with its path.
    """
    return read_part(_Router, {ROUTER: described}).router


class _Setting(Part):
    config_fetch: ConfigFetch = Field(alias=CONFIG_FETCH)


def read_config_fetch(described: object) -> ConfigFetch:
    """Return the setting ``configFetch``.

    Raises:
        InputError: every violation, with its path.
    """
    return read_part(_Setting, {CONFIG_FETCH: described}).config_fetch


DEFAULTS: Final = "engineDefaults"
ROLLOUT: Final = "rollout"
PROVEN_FIRST: Final = "provenImagesFirst"
PROMETHEUS: Final = "prometheus"


class Prometheus(Part):
    """Where KEDA asks for the load of models."""

    url: Annotated[
        str, StringConstraints(max_length=512, pattern=r"^(https?://[A-Za-z0-9._:/-]+)?$")
    ] = Field(default="", description="Its address; empty: no model is scaled.")


class _OfPrometheus(Part):
    prometheus: Prometheus


KNOWN: Final = (
    DEFAULTS,
    POLICY,
    *node_settings.NAMES,
    GPUS,
    AUTOSCALED_POOLS,
    NETWORK_POLICY,
    ROLLOUT,
    CONFIG_FETCH,
    PROVEN_FIRST,
    PROMETHEUS,
    ROUTER,
)

_NOTHING: Final[Mapping[str, Any]] = {
    DEFAULTS: {},
    POLICY: {},
    ROLLOUT: {},
    GPUS: [],
    AUTOSCALED_POOLS: [],
    NETWORK_POLICY: {},
    CONFIG_FETCH: {},
    PROVEN_FIRST: False,
    PROMETHEUS: {},
    ROUTER: {},
}
"""What a setting is that is not there, or that is ``null``."""

EVERY_NAMESPACE: Final = "*"
"""Stands for the namespaces that are not named."""

SYSTEM: Final = "system-"
"""How the PriorityClasses begin that Kubernetes keeps for itself: pods of theirs evict everything
else.
"""

NATIVE: Final = "Native"
"""Executor that everybody may ask for: the engine itself joins the ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Defaults for ``spec.engine`` and ``spec.pod``, and what users may use.

    ``stated`` holds for all nodes; nodes of ``autoscaled_pools`` need not exist yet.
    ``network_policy`` says who reaches pods. ``keeps_templates``: groups stay as another release
    has made them, unless their spec says otherwise. ``config_fetch``: whether configs that nobody
    has given are read from the hub. ``proven_images_first``: GPUs whose image this project has run
    are taken before others. ``prometheus_url`` is whom KEDA asks for the load of models (empty:
    nobody). ``router`` names the image of models' routers.
    """

    engine: Engine | None = None
    pod: Pod | None = None
    policy: UserPolicy = field(default_factory=partial(unsaid, UserPolicy))
    stated: Stated = field(default_factory=Stated)
    autoscaled_pools: tuple[AutoscaledPool, ...] = ()
    network_policy: NetworkPolicies = field(default_factory=partial(unsaid, NetworkPolicies))
    keeps_templates: bool = True
    config_fetch: ConfigFetch = field(default_factory=partial(unsaid, ConfigFetch))
    proven_images_first: bool = False
    prometheus_url: str = ""
    router: RouterSetting = field(default_factory=partial(unsaid, RouterSetting))

    def limits_of(self, namespace: str) -> NamespaceLimits:
        """Return the limits of the models of a namespace."""
        limits = self.policy.namespace_limits
        return limits.get(namespace, limits.get(EVERY_NAMESPACE, unsaid(NamespaceLimits)))


def read_settings(text: str) -> Settings:
    """Return the settings in a YAML or JSON text; none if it is empty.

    Raises:
        InputError: every violation; its path begins with the name of a setting.
    """
    from shardwright.api.manifest import read_manifests  # noqa: PLC0415 - reading YAML is not for who only plans

    found = read_manifests(text)
    content = found[0] if found else {}
    said = {name: content.get(name) or nothing for name, nothing in _NOTHING.items()}
    problems = [
        *(_unknown(name) for name in sorted(set(content) - set(KNOWN))),
        *_shapes(said),
        *_rollout(said[ROLLOUT]),
        *_proven_first(said[PROVEN_FIRST]),
    ]
    if problems or len(found) > 1:
        raise InputError(problems or [_unknown("a second document")])
    return _settings(content, said)


def _settings(content: Mapping[str, Any], said: Mapping[str, Any]) -> Settings:
    spec = _read_defaults(said[DEFAULTS])
    stated = node_settings.read_stated(content, read_gpus(said[GPUS]))
    return Settings(
        engine=spec.engine if "engine" in said[DEFAULTS] else None,
        pod=spec.pod if "pod" in said[DEFAULTS] else None,
        policy=read_policy(said[POLICY]),
        stated=stated,
        autoscaled_pools=read_pools(said[AUTOSCALED_POOLS], stated),
        network_policy=read_network_policies(said[NETWORK_POLICY]),
        keeps_templates=said[ROLLOUT].get("onUpgrade") != "Roll",
        config_fetch=read_config_fetch(said[CONFIG_FETCH]),
        proven_images_first=said[PROVEN_FIRST],
        prometheus_url=read_part(_OfPrometheus, {PROMETHEUS: said[PROMETHEUS]}).prometheus.url,
        router=read_router(said[ROUTER]),
    )


def check_runtime_class(own: Spec, settings: Settings) -> Iterator[Problem]:
    """Yield why a RuntimeClass is not admitted: it decides what containers see of nodes."""
    admitted = settings.policy.admitted_runtime_classes
    name = own.pod.runtime_class_name if own.pod else None
    default = settings.pod.runtime_class_name if settings.pod else None
    if name is None or name == default or name in admitted:
        return
    yield Problem(
        code="RuntimeClassNotAdmitted",
        path="spec.pod.runtimeClassName",
        what=name,
        limit=f"must be one of {', '.join(sorted(admitted)) or 'none'}",
        gap="as only the administrator may admit what a container sees of its node",
        remedy=f"leave it out, or have {name} added to policy.admittedRuntimeClasses of the chart",
    )


def check_executor(own: Spec, settings: Settings) -> Iterator[Problem]:
    """Yield why an executor is not admitted: who reaches a Ray pod can run code in it."""
    name = own.engine.executor
    default = settings.engine.executor if settings.engine else None
    if name in {None, NATIVE, default} or name in settings.policy.admitted_executors:
        return
    yield Problem(
        code="ExecutorNotAdmitted",
        path="spec.engine.executor",
        what=str(name),
        limit=f"must be {' or '.join(sorted({NATIVE, *settings.policy.admitted_executors}))}",
        gap="as only the administrator may admit Ray, whose "
        "cluster runs the code of whoever reaches it",
        remedy=f"leave it out, or have {name} added to policy.admittedExecutors of the chart",
    )


def check_priority_class(own: Spec, namespace: str, settings: Settings) -> Iterator[Problem]:
    """Yield why a PriorityClass is not admitted in a namespace: its pods precede others'."""
    name = own.pod.priority_class_name if own.pod else None
    default = settings.pod.priority_class_name if settings.pod else None
    if name is None or name == default:
        return
    by_namespace = settings.policy.admitted_priority_classes
    # A namespace that is named has its own list alone, even if that is the shorter one.
    admitted = by_namespace.get(namespace, by_namespace.get(EVERY_NAMESPACE))
    if name in admitted if admitted is not None else not name.startswith(SYSTEM):
        return
    limit = (
        f"must not begin with {SYSTEM}"
        if admitted is None
        else f"must be one of {', '.join(sorted(admitted)) or 'none'}"
    )
    yield Problem(
        code="PriorityClassNotAdmitted",
        path="spec.pod.priorityClassName",
        what=name,
        limit=f"{limit} in namespace {namespace}",
        gap="as only the administrator may let pods go first",
        remedy=f"leave it out, or have {name} added to policy.admittedPriorityClasses of the chart",
    )


def check_default_version(own: Spec, settings: Settings) -> Iterator[Problem]:
    """Yield why a version may not be stated beside the default's image, which has its own."""
    stated, default = own.engine.version, settings.engine
    if (
        stated is None
        or own.engine.image is not None
        or default is None
        or default.name != own.engine.name
    ):
        return
    if default.image is None or default.version in (None, stated):
        return
    yield Problem(
        code="EngineVersionMismatch",
        path="spec.engine.version",
        what=f"version {stated}",
        limit=f"contradicts {DEFAULTS}, whose image {default.image} holds {default.version}",
        remedy="leave spec.engine.version out, or name spec.engine.image as well",
    )


def with_defaults(spec: Spec, settings: Settings) -> tuple[Spec, tuple[str, ...]]:
    """Return the spec with its open fields filled in, and those fields' sorted paths."""
    applied: list[str] = []
    engine, pod = spec.engine, spec.pod
    # Options are an engine's own.
    if settings.engine and settings.engine.name == engine.name:
        engine = _merged(engine, _fitting(engine, settings.engine), "engine", applied)
    if settings.pod:
        own = pod or unsaid(Pod)
        pod = _merged(own, _beside(own, settings.pod), "pod", applied)
    if not applied:
        return spec, ()
    return spec.model_copy(update={"engine": engine, "pod": pod}), tuple(sorted(applied))


def _fitting(own: Engine, default: Engine) -> Engine:
    # The version of the defaults is that of their image: a resource with an image of its own gets
    # neither. An option that it sets itself is its own in either spelling.
    kept = own.image is None
    set_there = {name.replace("_", "-") for name in own.args}
    return default.model_copy(
        update={
            "image": default.image if kept else None,
            "version": default.version if kept and not own.version else None,
            "args": {
                name: value
                for name, value in default.args.items()
                if name.replace("_", "-") not in set_there
            },
        }
    )


def _beside(own: Pod, default: Pod) -> Pod:
    # Two volumes cannot share a folder, and the resource's own volume wins.
    taken = [volume.mount_path for volume in own.volumes or ()]
    volumes = [
        given
        for given in default.volumes or ()
        if not any(lie_together(given.mount_path, path) for path in taken)
    ]
    return default.model_copy(
        update={"volumes": volumes, "resources": default.resources or unsaid(Resources)}
    )


def _merged(own: APart, default: APart, path: str, applied: list[str]) -> APart:
    """Return a part with defaults: maps, named lists and resources merge, others fill gaps."""
    update: dict[str, Any] = {}
    for name in type(own).model_fields:
        mine, given = getattr(own, name), getattr(default, name)
        at = f"{path}.{to_camel(name)}"
        if isinstance(given, Resources):
            update[name] = _merged(mine or unsaid(Resources), given, at, applied)
        elif isinstance(given, dict):
            new = {key: given[key] for key in given if key not in (mine or {})}
            update |= {name: {**new, **(mine or {})}} if new else {}
            applied += [f"{at}.{key}" for key in new]
        elif isinstance(given, list):
            there = {item.name for item in mine or ()}
            more = [item for item in given if item.name not in there]
            update |= {name: [*(mine or ()), *more]} if more else {}
            applied += [f"{at}.{item.name}" for item in more]
        elif mine is None and given is not None:
            update[name] = given
            applied.append(at)
    return own.model_copy(update=update)


def _read_defaults(defaults: Mapping[str, Any]) -> Spec:
    # As the spec of a resource that has nothing else: the same bounds, the same rules.
    manifest = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "defaults"}}
    try:
        return parse_manifest(manifest | {"spec": {"model": {"id": "any"}, **defaults}}).spec
    except InputError as error:
        raise InputError(_of_defaults(problem) for problem in error.problems) from None


def _of_defaults(problem: Problem) -> Problem:
    path = f"{DEFAULTS}.{problem.path.removeprefix('spec.')}"
    if problem.code == "UnknownField":
        problem = replace(problem, what="is not a field of the settings")
    return replace(problem, path=path)


def _shapes(said: Mapping[str, Any]) -> Iterable[Problem]:
    defaults = said[DEFAULTS]
    if not isinstance(defaults, Mapping):
        yield _wrong(DEFAULTS, defaults, "must be an object with engine, pod or both")
        return
    engine = defaults.get("engine")
    yield from (
        _unknown(f"{DEFAULTS}.{name}")
        for name in (
            *sorted(set(defaults) - {"engine", "pod"}),
            *(
                f"engine.{name}"
                for name in OF_ONE_MODEL
                if isinstance(engine, Mapping) and name in engine
            ),
        )
    )


def _rollout(rollout: object) -> Iterable[Problem]:
    if not isinstance(rollout, Mapping):
        yield _wrong(ROLLOUT, rollout, "must be an object with onUpgrade")
        return
    yield from (_unknown(f"{ROLLOUT}.{name}") for name in sorted(set(rollout) - {"onUpgrade"}))
    if (said := rollout.get("onUpgrade", "Keep")) not in ("Keep", "Roll"):
        yield _wrong(f"{ROLLOUT}.onUpgrade", said, "must be Keep or Roll")


def _proven_first(said: object) -> Iterable[Problem]:
    if not isinstance(said, bool):
        yield _wrong(PROVEN_FIRST, said, "must be true or false")


def _unknown(path: str) -> Problem:
    remedy = f"known here: {DEFAULTS}.engine, {DEFAULTS}.pod, {', '.join(KNOWN[1:])}"
    return Problem(
        code="UnknownField", path=path, what="is not a setting of the operator", remedy=remedy
    )


def _wrong(path: str, value: object, limit: str) -> Problem:
    return Problem(
        code="WrongType", path=path, what=json.dumps(value)[:80], limit=limit, remedy="correct it"
    )
