"""The engines, each with all that planning, arguments and rendering ask for."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final

from shardwright.engines import policy, sglang, trtllm, vllm
from shardwright.engines.launch import Serving, Start
from shardwright.engines.options import Rules
from shardwright.engines.versions import Releases, release_month
from shardwright.engines.vllm import traits as vllm_traits
from shardwright.engines.vllm.traits import release_of
from shardwright.errors import Problem
from shardwright.layouts.layout import EngineTraits
from shardwright.planning.report import Plan


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EngineDefinition:
    """One engine.

    ``name`` is its name in a resource, ``label`` in labels and script folders. ``arguments`` is
    argv after the engine's command, the same on every rank; ``family_arguments`` are those for a
    model's id in a version, without what the given ones say. ``files`` are mounted beside the
    scripts, ``environment`` has the settings that only variables carry, ``variables`` the names
    that users may set. ``peer_port`` is name and number of the port for ranks on other nodes,
    ``address_variable`` holds the pod's address, ``api_key_variable`` the key that clients must
    send. ``in_flight`` are the gauges for Prometheus that add up to an engine's requests in flight
    (empty: it has none). ``over_ssh``: the leader starts its followers' ranks over ssh, with a key
    of the resource's own. ``engine_per_replica``: each attention replica is an engine with
    processes of its own, not ranks of the one that there is. ``mixes_expert_cuts``: experts may be
    dealt to sets of ranks, as its traits say. ``over_ray``: Ray can join its ranks. ``reserved``
    are characters that no name for clients may have. ``predicted`` are the traits of a version
    (None: the newest) that need not be deployable. ``loads_guard``: our guard of the key runs in
    its process.
    """

    name: str
    label: str
    releases: Releases
    rules: Rules
    traits: Callable[[str], EngineTraits]
    arguments: Callable[[Plan, Serving], tuple[str, ...]]
    environment: Callable[[Plan, Start], Mapping[str, str]]
    variables: frozenset[str]
    peer_port: tuple[str, int]
    address_variable: str
    predicted: Callable[[str | None], EngineTraits]
    files: Callable[[Plan, Serving], Mapping[str, str]] = lambda _plan, _serving: {}
    family_arguments: Callable[[str, str, Mapping[str, object]], Mapping[str, object]] = (
        lambda _model, _version, _arguments: {}
    )
    api_key_variable: str = "SHARDWRIGHT_API_KEY"
    over_ssh: bool = False
    over_ray: bool = False
    engine_per_replica: bool = False
    mixes_expert_cuts: bool = False
    reserved: str = ""
    loads_guard: bool = False
    in_flight: tuple[str, ...] = ()


def _vllm(version: str | None) -> EngineTraits:
    """Return vLLM's rules; a version that names no release has those of its month."""
    numbered = release_of(version or "") is not None
    return vllm_traits.traits(
        version
        if version and numbered
        else release_month(vllm_traits.NAME, version) or _RULES_READ_IN
    )


_RULES_READ_IN: Final = "0.33.0"

VLLM: Final = EngineDefinition(
    name="vLLM",
    label="vllm",
    releases=vllm.releases.RELEASES,
    rules=vllm.policy.RULES,
    traits=vllm.traits.traits,
    arguments=vllm.arguments.serve_arguments,
    environment=vllm.environment.environment,
    variables=vllm.environment.VARIABLES,
    peer_port=("master", vllm.arguments.MASTER_PORT),
    address_variable="VLLM_HOST_IP",
    api_key_variable="VLLM_API_KEY",
    family_arguments=vllm.arguments.family_arguments,
    predicted=_vllm,
    over_ray=True,
    engine_per_replica=True,
    loads_guard=True,
    in_flight=("vllm:num_requests_running", "vllm:num_requests_waiting"),
)
TENSORRT_LLM: Final = EngineDefinition(
    name="TensorRTLLM",
    label="trtllm",
    releases=trtllm.releases.RELEASES,
    rules=trtllm.policy.RULES,
    traits=trtllm.traits.traits,
    arguments=trtllm.arguments.serve_arguments,
    files=trtllm.arguments.files,
    environment=trtllm.environment.environment,
    variables=trtllm.environment.VARIABLES,
    peer_port=("ssh", trtllm.arguments.SSH_PORT),
    address_variable="SHARDWRIGHT_ADDRESS",
    predicted=trtllm.traits.predicted,
    over_ssh=True,
    mixes_expert_cuts=True,
)
SGLANG: Final = EngineDefinition(
    name="SGLang",
    label="sglang",
    releases=sglang.releases.RELEASES,
    rules=sglang.policy.RULES,
    traits=sglang.traits.traits,
    arguments=sglang.arguments.serve_arguments,
    environment=sglang.environment.environment,
    variables=sglang.environment.VARIABLES,
    peer_port=("store", sglang.arguments.PEER_PORT),
    address_variable="SGLANG_HOST_IP",
    predicted=sglang.traits.predicted,
    mixes_expert_cuts=True,
    reserved=":",  # sets adapters apart; srt/arg_groups/validation_hook.py
    in_flight=("sglang:num_running_reqs", "sglang:num_queue_reqs"),
)

ENGINES: Final[Mapping[str, EngineDefinition]] = MappingProxyType(
    {engine.name: engine for engine in (VLLM, TENSORRT_LLM, SGLANG)}
)
"""By the name that a resource gives."""

_POLICIES: Final = tuple(engine.rules.policy for engine in ENGINES.values())
_ADMISSIBLE: Final = frozenset(name for one in _POLICIES for name in one.admissible)


def check_admission(names: Collection[str]) -> tuple[Problem, ...]:
    """Return the options nobody can admit for any engine, each problem's path the option."""
    return tuple(_not_admissible(name) for name in sorted(names) if name not in _ADMISSIBLE)


def _not_admissible(name: str) -> Problem:
    reason = next(
        (why for one in _POLICIES if (why := one.owned.get(name) or one.incompatible.get(name))),
        None,
    )
    allowed = any(name in one.allowed or name in one.counted for one in _POLICIES)
    close = get_close_matches(name.lstrip("-"), sorted(_ADMISSIBLE), n=1, cutoff=0.9)
    why = (
        "it is allowed anyway"
        if allowed
        else reason or (f"did you mean {close[0]}?" if close else policy.UNLISTED)
    )
    return Problem(
        code="EngineArgumentNotAdmissible",
        path=name,
        what=f"--{name.lstrip('-')}",
        limit="cannot be admitted" if name == name.lstrip("-") else "is written without dashes",
        gap=why,
        remedy="leave it out; docs/engines.md lists what can be admitted",
    )


def traits_of(engine: str, version: str | None) -> EngineTraits:
    """Return what planning must know of an engine's version (None: the newest).

    Raises:
        KeyError: The engine is not known.
    """
    return replace(
        _ENGINES[engine](version), version=version or "", released=release_month(engine, version)
    )


_ENGINES: Final[Mapping[str, Callable[[str | None], EngineTraits]]] = MappingProxyType(
    {engine.releases.engine: engine.predicted for engine in ENGINES.values()}
)

BY_LOWER_NAME: Final[Mapping[str, str]] = MappingProxyType(
    {name.lower(): name for name in _ENGINES}
)
"""The names of the engines by their lower case."""
