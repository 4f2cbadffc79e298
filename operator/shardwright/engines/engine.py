"""The engines that can be deployed: everything that planning, arguments and rendering ask one for,
as one value.

SGLang is none of them: its speed is predicted, and nothing deploys it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from shardwright.engines import arguments, environment, options, trtllm, versions, vllm
from shardwright.engines.arguments import Serving, Start
from shardwright.engines.options import Rules
from shardwright.engines.versions import Releases
from shardwright.layouts.traits import EngineTraits
from shardwright.planning.report import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDefinition:
    """One engine.

    ``name`` is how a resource names it, ``label`` how labels and script folders do. ``arguments``
    is argv after the engine's command and the same on every rank, ``files`` are mounted beside the
    scripts, ``environment`` has the settings that only variables carry, and ``variables`` the names
    of those that users may set. ``peer_port`` is the name and number of the port at which ranks on
    other nodes are met, ``address_variable`` the variable that holds the pod's address.
    ``over_ssh`` says that the leader starts the ranks of its followers, over ssh with a key of the
    resource's own.
    """

    name: str
    label: str
    releases: Releases
    rules: Rules
    traits: Callable[[str], EngineTraits]
    arguments: Callable[[Plan, Serving], tuple[str, ...]]
    files: Callable[[Plan, Serving], Mapping[str, str]]
    environment: Callable[[Plan, Start], Mapping[str, str]]
    variables: frozenset[str]
    peer_port: tuple[str, int]
    address_variable: str
    over_ssh: bool


VLLM: Final = EngineDefinition(
    name="vLLM",
    label="vllm",
    releases=versions.VLLM,
    rules=options.VLLM,
    traits=vllm.traits,
    arguments=arguments.serve_arguments,
    files=lambda _plan, _serving: {},
    environment=arguments.serve_environment,
    variables=environment.VLLM,
    peer_port=("master", arguments.MASTER_PORT),
    address_variable="VLLM_HOST_IP",
    over_ssh=False,
)
TENSORRT_LLM: Final = EngineDefinition(
    name="TensorRTLLM",
    label="trtllm",
    releases=versions.TENSORRT_LLM,
    rules=options.TENSORRT_LLM,
    traits=trtllm.traits,
    arguments=trtllm.serve_arguments,
    files=trtllm.files,
    environment=trtllm.environment,
    variables=environment.TENSORRT_LLM,
    peer_port=("ssh", trtllm.SSH_PORT),
    address_variable="SHARDWRIGHT_ADDRESS",
    over_ssh=True,
)

ENGINES: Final[Mapping[str, EngineDefinition]] = MappingProxyType(
    {engine.name: engine for engine in (VLLM, TENSORRT_LLM)}
)
"""By the name that a resource gives."""
