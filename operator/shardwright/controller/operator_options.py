"""The operator's command line; wrong combinations are refused here, so nothing else checks them."""

import argparse
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Final, NoReturn

from shardwright.cluster.calls import RequestLimits
from shardwright.cluster.leases import LeaseTimings, unique_holder
from shardwright.controller.budget import QuestionBudget
from shardwright.units import MIB

log = logging.getLogger(__name__)

BAD_USAGE: Final = 2
TIMINGS: Final = LeaseTimings()
LIMITS: Final = RequestLimits()

QUESTION_CPU_SECONDS: Final = 10.0
"""Basis: measured; 1,000 replicas of a catalogued model on 5,000 nodes take 2 to 6 s."""

WORKER_MEMORY_MIB: Final = 192
"""Basis: measured; 70 MiB after all models of the catalogue on 5,000 nodes. The chart's limit is
512 MiB for both processes.
"""

MODEL_SERIES: Final = 100_000
"""Basis: measured; they take 110 MiB, and 1.4 s of CPU a scrape. A model of one group has about 35,
each further group 4.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How this process runs."""

    kubeconfig: Path | None
    context: str | None
    credentials_dir: Path | None
    leader_elect: bool
    installation: str
    watch_namespaces: tuple[str, ...]
    lease_namespace: str
    lease_name: str
    lease_duration_seconds: int
    lease_renew_deadline_seconds: float
    lease_retry_seconds: float
    identity: str
    catalogue_file: Path | None
    settings_file: Path | None
    signing_keys_file: Path | None
    cluster_domain: str
    port: int
    health_port: int
    max_model_series: int
    metrics_authentication: str
    plans: bool
    resync_seconds: float
    workers: int
    max_moving_groups: int
    kube_api_qps: float
    kube_api_burst: int
    question_cpu_seconds: float
    worker_memory_mib: int
    log_level: str

    @property
    def lease_timings(self) -> LeaseTimings:
        """Return the timings of the Lease; ValueError if they contradict each other."""
        return LeaseTimings(
            duration_seconds=self.lease_duration_seconds,
            renew_deadline_seconds=self.lease_renew_deadline_seconds,
            retry_seconds=self.lease_retry_seconds,
        )

    @property
    def request_limits(self) -> RequestLimits:
        """Return the limits on requests to the API server."""
        return RequestLimits(qps=self.kube_api_qps, burst=self.kube_api_burst)

    @property
    def budget(self) -> QuestionBudget:
        """Return the planner process's budget for one question."""
        return QuestionBudget(
            cpu_seconds=self.question_cpu_seconds, memory_bytes=self.worker_memory_mib * MIB
        )


def parse_options(arguments: Sequence[str] | None = None) -> Options:
    """Return the options, or end the process with a complaint in the log."""
    parser = operator_parser()
    given = vars(parser.parse_args(arguments))
    options = Options(
        **given
        | {
            "identity": given["identity"]
            # The pod's name: it is unique in the namespace, and whoever reads the Lease finds the
            # pod by it.
            or os.environ.get("POD_NAME")
            or unique_holder()
        }
    )
    try:
        _ = options.lease_timings
    except ValueError as error:
        parser.error(str(error))
    if options.plans and options.metrics_authentication == "None":
        parser.error(
            "--plans shows plans to anyone whose token the API server accepts: it needs "
            "--metrics-authentication=TokenReview"
        )
    return options


class _Parser(argparse.ArgumentParser):
    """A parser that complains in the log: nobody types this command line."""

    def error(self, message: str) -> NoReturn:
        log.critical("the command line cannot be used: %s", message)
        self.exit(BAD_USAGE)


def operator_parser() -> argparse.ArgumentParser:
    """Return the parser of the operator's command line."""
    parser = _Parser(
        prog="shardwright-operator",
        description="Plans, deploys and keeps alive every ShardedModel of the cluster.",
        # The page of flags is made of this help, so a default cannot be told wrong there.
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    _add_access(parser)
    _add_scope(parser)
    _add_leadership(parser)
    _add_files(parser)
    parser.add_argument(
        "--cluster-domain", default="cluster.local", help="domain of the cluster's DNS"
    )
    _add_ports(parser)
    _add_pace(parser)
    _add_requests(parser)
    _add_worker(parser)
    parser.add_argument(
        "--log-level",
        default="INFO",
        choices=("DEBUG", "INFO", "WARNING", "ERROR"),
        help="least level to log",
    )
    return parser


def _add_access(parser: argparse.ArgumentParser) -> None:
    kubeconfig = os.environ.get("KUBECONFIG")
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        default=Path(kubeconfig) if kubeconfig else None,
        help="reach the cluster by this file instead of the "
        "pod's service account (environment: KUBECONFIG)",
    )
    parser.add_argument("--context", help="context of the kubeconfig")
    parser.add_argument(
        "--credentials-dir", type=Path, help="folder of the service account's token and ca.crt"
    )


def _add_scope(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--watch-namespaces",
        type=_namespaces,
        default=(),
        help="namespaces whose ShardedModels are served, with commas between them; default: all",
    )
    parser.add_argument(
        "--installation",
        default="",
        help="namespace and name of the release that this is part of: the nodes and namespaces "
        "that it is for must be claimed "
        "for it, or it ends; default: nothing is claimed",
    )


def _add_leadership(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--leader-elect",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="write only while holding the Lease",
    )
    parser.add_argument(
        "--lease-namespace",
        default=os.environ.get("POD_NAMESPACE", "shardwright-system"),
        help="namespace of the Lease",
    )
    parser.add_argument("--lease-name", default="shardwright", help="name of the Lease")
    parser.add_argument(
        "--lease-duration-seconds",
        type=_at_least_one,
        default=TIMINGS.duration_seconds,
        help="how long the others wait for a leader that says nothing",
    )
    parser.add_argument(
        "--lease-renew-deadline-seconds",
        type=_positive,
        default=TIMINGS.renew_deadline_seconds,
        help="a leader that could not renew the Lease for so long ends; shorter than the duration",
    )
    parser.add_argument(
        "--lease-retry-seconds",
        type=_positive,
        default=TIMINGS.retry_seconds,
        help="time between renewals, less some jitter; those who wait look four times as often; at "
        "most half of the deadline",
    )
    parser.add_argument(
        "--identity",
        help="our name in the Lease; default: POD_NAME, else that of the host and something random",
    )


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--catalogue-file",
        type=Path,
        help="JSON file of model id to config.json text, beside the built-in ones",
    )
    parser.add_argument(
        "--settings-file",
        type=Path,
        help="YAML or JSON file of the administrator's settings for all models",
    )
    parser.add_argument(
        "--signing-keys-file",
        type=Path,
        help="file of keys, one a line: the first signs plans of record, all verify them, and "
        "names of Secrets that are made "
        "follow from it; without it nothing is signed, and such names can be foreseen",
    )


def _add_ports(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port", type=int, default=8080, help="port of /metrics; 0 for any free one"
    )
    parser.add_argument(
        "--health-port",
        type=int,
        default=8081,
        help="port of /healthz and /readyz; 0 for any free one",
    )
    parser.add_argument(
        "--max-model-series",
        type=_at_least_one,
        default=MODEL_SERIES,
        help="series of all models together in /metrics; a model whose series do not fit any more "
        "lacks the new ones",
    )
    parser.add_argument(
        "--metrics-authentication",
        choices=("None", "TokenReview"),
        default="None",
        help="TokenReview: /metrics is answered to anyone whose token the API server accepts and "
        "lets GET /metrics",
    )
    parser.add_argument(
        "--plans",
        action="store_true",
        help="serve plans as pages at /plans of that port, to anyone whose token the API server "
        "accepts, and of the namespaces in which they may list ShardedModels, or get one; needs "
        "--metrics-authentication=TokenReview",
    )


def _add_pace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--resync-seconds", type=float, default=300.0, help="mean time between full comparisons"
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=16,
        help="resources that are worked on at once; a quarter is kept for groups that do not serve",
    )
    parser.add_argument(
        "--max-moving-groups",
        type=_at_least_one,
        default=5,
        help="groups of all models that are moved or rolled at once, within spec.rollout of "
        "each; the last one is kept for a namespace that has none",
    )


def _add_requests(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kube-api-qps",
        type=_positive,
        default=LIMITS.qps,
        help="requests a second to the API server, the Lease apart",
    )
    parser.add_argument(
        "--kube-api-burst",
        type=_at_least_one,
        default=LIMITS.burst,
        help="requests at once after a pause",
    )


def _add_worker(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--question-cpu-seconds",
        type=_positive,
        default=QUESTION_CPU_SECONDS,
        help="CPU time that reading one resource and its config, or planning it once, may take",
    )
    parser.add_argument(
        "--worker-memory-mib",
        type=_at_least_one,
        default=WORKER_MEMORY_MIB,
        help="memory, in MiB, of the process in which resources are read and planned",
    )


def _namespaces(text: str) -> tuple[str, ...]:
    return tuple(sorted({name for name in text.split(",") if name}))


def _positive(text: str) -> float:
    value = float(text)
    # float() takes "inf" and "nan", and no comparison with a nan holds.
    if not 0 < value < inf:
        raise argparse.ArgumentTypeError(f"must be more than 0, not {text}")
    return value


def _at_least_one(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {text}")
    return value
