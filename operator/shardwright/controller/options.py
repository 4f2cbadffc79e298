"""The command line of the operator; every flag has an environment variable of the same meaning."""

import argparse
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How this process runs."""

    kubeconfig: Path | None
    context: str | None
    credentials_dir: Path | None
    leader_elect: bool
    lease_namespace: str
    lease_name: str
    identity: str
    catalogue_file: Path | None
    settings_file: Path | None
    cluster_domain: str
    port: int
    resync_seconds: float
    workers: int
    log_level: str


def parse_options(arguments: Sequence[str] | None = None) -> Options:
    """Return the options, or end the process with a usage message."""
    return Options(**vars(_parser().parse_args(arguments)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="shardwright-operator",
        description="Plans, deploys and keeps alive every ShardedModel of the cluster.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    _add_access(parser)
    _add_leadership(parser)
    parser.add_argument("--catalogue-file", type=Path, help="JSON file of model id to config.json text, beside the built-in ones")
    parser.add_argument("--settings-file", type=Path, help="YAML or JSON file of what the administrator says for all models")
    parser.add_argument("--cluster-domain", default="cluster.local", help="domain of the cluster's DNS")
    parser.add_argument("--port", type=int, default=8080, help="port of /healthz, /readyz and /metrics; 0 for any free one")
    parser.add_argument("--resync-seconds", type=float, default=300.0, help="mean time between full comparisons")
    parser.add_argument("--workers", type=int, default=8, help="resources that are worked on at once")
    parser.add_argument("--log-level", default="INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR"), help="least level to log")
    return parser


def _add_access(parser: argparse.ArgumentParser) -> None:
    kubeconfig = os.environ.get("KUBECONFIG")
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        default=Path(kubeconfig) if kubeconfig else None,
        help="reach the cluster by this file instead of the pod's service account (environment: KUBECONFIG)",
    )
    parser.add_argument("--context", help="context of the kubeconfig")
    parser.add_argument("--credentials-dir", type=Path, help="folder of the service account's token and ca.crt")


def _add_leadership(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--leader-elect", action=argparse.BooleanOptionalAction, default=True, help="write only while holding the Lease"
    )
    parser.add_argument(
        "--lease-namespace", default=os.environ.get("POD_NAMESPACE", "shardwright-system"), help="namespace of the Lease"
    )
    parser.add_argument("--lease-name", default="shardwright", help="name of the Lease")
    parser.add_argument("--identity", default=os.environ.get("POD_NAME", socket.gethostname()), help="our name in the Lease")
