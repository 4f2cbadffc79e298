"""The scripts in the engine's container and the programs beside them; the only use of templates.

Python programs are mounted as they are and get everything by arguments. No user's value is
rendered: they reach the scripts as arguments and environment.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from importlib import resources
from math import ceil
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from shardwright.costs.host import RAY_STORE_BYTES
from shardwright.engines.registry import EngineDefinition
from shardwright.planning.drain import LEAST_SECONDS
from shardwright.rendering import group_token, pod_resources, ray, ssh

if TYPE_CHECKING:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

HTTP_PORT: Final = 8000
"""Port of the engine's HTTP server in the pod, and of the client Service."""

RENDEZVOUS_PORT: Final = 29510
"""Port on which the leader's launch script meets the other ranks; away from vLLM's 29500, 29501 and
29550.
"""

LEADER_GONE_SECONDS: Final = 30
"""A follower ends when its leader has been gone for this long; lifecycle rule."""

PROBE_SECONDS: Final = 4
"""A probe's own limit for one answer; below the kubelet's."""

UNFIT_KEY_EXIT_CODE: Final = 65
"""The launch script's, if the API key is one that no client could send; EX_DATAERR of sysexits.h.
"""

UNMET_EXIT_CODE: Final = 76
"""The launch script's, if a rank could not meet the others, or their Ray cluster did not have all
of them.
"""

GROUP_ENDED_EXIT_CODE: Final = 77
"""The launch script's, if a rank ends because another one has."""

OVERDUE_EXIT_CODE: Final = 79
"""The launch script's, if the engine did not serve within its start-up budget."""

SCRIPTS_DIR: Final = "/etc/shardwright"
"""Where the scripts and the engine's own files are mounted."""

SSH_SECONDS: Final = 60
"""How long the leader goes on trying a follower that has met it but does not take its ssh
connection yet; assumed.
"""

LOOK_SECONDS: Final = 30
"""Seconds that a check of the engine's tokens may take beside waiting for one (``silence_seconds``)
before it counts as hung; assumed: three answers of 4 s and the pauses between checks, doubled.
"""

WATCH_PAUSE_SECONDS: Final = 5
"""Pause before a watcher of the tokens that has ended starts again; assumed: well below
``LOOK_SECONDS``, and cheap for ever.
"""

REMEMBERED: Final = 256
"""Settings whose scripts are kept, as every reconcile renders them. Basis: assumed; 20 KB each,
mostly shared, as resources' settings differ by little but their start-up budgets.
"""

_SHELL: Final = ("drain.sh", "environment.sh", "launch.sh", "probe.sh")


@dataclass(frozen=True, slots=True, kw_only=True)
class SshJoining:
    """How the leader starts its followers' ranks, if it ``joins`` them over ssh.

    It tells them ``shared_variables`` and tries each for ``tries_seconds``.
    """

    joins: bool = False
    shared_variables: tuple[str, ...] = ()
    tries_seconds: int = SSH_SECONDS
    key_dir: str = ssh.KEY_DIR
    user_id: int = ssh.USER_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class RayJoining:
    """How pods become one Ray cluster, if it ``joins`` them: in ``join_seconds``, or ranks end."""

    joins: bool = False
    port: int = ray.PORT
    join_seconds: int = ray.JOIN_SECONDS
    answer_seconds: int = ray.ANSWER_SECONDS
    store_bytes: int = RAY_STORE_BYTES
    folder: str = ray.FOLDER


@dataclass(frozen=True, slots=True, kw_only=True)
class RankNetwork:
    """How a rank is reached. ``rdma``: its pod has RDMA devices; ``tcp_only``: it uses none."""

    http_port: int = HTTP_PORT
    rendezvous_port: int = RENDEZVOUS_PORT
    rdma: bool = False
    tcp_only: bool = False
    infiniband_dir: str = "/sys/class/infiniband"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptPaths:
    """The paths of a pod's scripts, each in a volume."""

    run_dir: str = "/run/shardwright"
    shm_dir: str = "/dev/shm"  # noqa: S108 - the engine's shared memory, a volume of the pod
    scripts_dir: str = SCRIPTS_DIR
    termination_log: str = "/dev/termination-log"
    token_file: str = f"{group_token.FOLDER}/{group_token.FILE}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptTimes:
    """How long scripts wait, in seconds; an engine serves in ``start_seconds`` or its rank ends."""

    start_seconds: float = pod_resources.LEAST_SECONDS + pod_resources.LAST_WORDS_SECONDS
    leader_gone_seconds: float = LEADER_GONE_SECONDS
    poll_seconds: float = 1
    probe_seconds: float = PROBE_SECONDS
    endpoint_seconds: int = pod_resources.ENDPOINT_SECONDS
    drain_seconds: int = LEAST_SECONDS
    lease_seconds: int = 0  # after the last request, in which K/V is still fetched
    shutdown_seconds: int = pod_resources.SHUTDOWN_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchExitCodes:
    """The launch script's exit codes for why a rank has ended."""

    unfit_key: int = UNFIT_KEY_EXIT_CODE
    unmet: int = UNMET_EXIT_CODE
    group_ended: int = GROUP_ENDED_EXIT_CODE
    overdue: int = OVERDUE_EXIT_CODE


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenWatch:
    """When a leader is not ready for want of tokens.

    It brought none for ``silence_seconds`` (0: nobody watches), or nobody has looked for
    ``look_seconds`` more. One without requests is asked after ``idle_seconds``.
    """

    silence_seconds: float = 0
    idle_seconds: float = 0
    look_seconds: float = LOOK_SECONDS
    pause_seconds: float = WATCH_PAUSE_SECONDS

    @property
    def stale_seconds(self) -> int:
        """Return the age in seconds at which an observation of tokens says nothing any more."""
        return ceil(self.silence_seconds + self.look_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptSettings:
    """What a resource's scripts know: a group's ranks (nodes), their workers, and more by topic.

    ``engine`` has scripts of its own, by its label; clients send a key if the resource
    ``demands_key``. ``attention_replicas`` are one pod's if a group has them on several pods.
    ``shm_bytes`` is the planned shared memory. ``variables`` are set before the engine starts.
    """

    engine: EngineDefinition
    ranks: int
    workers: int = 1
    attention_replicas: int = 0
    demands_key: bool = False
    downloads: bool = False
    shm_bytes: int = 0
    variables: tuple[tuple[str, str], ...] = ()
    ssh: SshJoining = SshJoining()
    ray: RayJoining = RayJoining()
    network: RankNetwork = RankNetwork()
    paths: ScriptPaths = ScriptPaths()
    times: ScriptTimes = ScriptTimes()
    exit_codes: LaunchExitCodes = LaunchExitCodes()
    tokens: TokenWatch = TokenWatch()


@lru_cache(maxsize=REMEMBERED)
def scripts(settings: ScriptSettings) -> Mapping[str, str]:
    """Return the mounted scripts' content by file name."""
    files = [*_SHELL, *(ssh.FILES if settings.ssh.joins else ())]
    # Only programs that are used: one more would be another ConfigMap, and so another template.
    programs = ["rendezvous"] if settings.ranks > 1 else []
    if settings.tokens.silence_seconds:
        programs += ["serving", f"counters_{settings.engine.label}"]
    programs += ["weights"] if settings.downloads else []
    programs += ["key_guard"] if settings.demands_key and settings.engine.loads_guard else []
    values = {field.name: getattr(settings, field.name) for field in fields(settings)}
    rendered = {name: _environment().get_template(name).render(values) for name in files}
    return MappingProxyType(
        rendered | {f"{name}.py": _text(f"programs/{name}.py") for name in programs}
    )


@cache
def _text(path: str) -> str:
    return resources.files("shardwright.rendering").joinpath(path).read_text(encoding="utf-8")


def _load(name: str) -> str:
    return _text(f"templates/{name}.j2")


def _quoted(value: object) -> str:
    return shlex.quote(str(value))


@cache
def _environment() -> "ImmutableSandboxedEnvironment":
    from jinja2 import FunctionLoader, StrictUndefined  # noqa: PLC0415 - a sixth of the start of commands that only plan
    from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415 - as the line above

    environment = ImmutableSandboxedEnvironment(
        loader=FunctionLoader(_load),
        # Else a misspelt name would render as nothing, in a shell script.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # shell, not HTML: values are quoted by the filter
    )
    environment.filters["shell"] = _quoted
    return environment
