"""`python -m tests.kind {up,down}`: a kind cluster with the operator in it, from the command line."""

# ruff: noqa: T201 - a command prints
from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from tests.harness.errors import HarnessError
from tests.kind import cluster, docker, engine, images, programs, release
from tests.kind.errors import UnavailableError
from tests.kind.shell import say

_UNAVAILABLE = 2


def main() -> int:
    options = _parser().parse_args()
    try:
        if options.command == "down":
            return _down()
        if options.kubeconfig:
            return _install(cluster.Cluster(options.kubeconfig, programs.programs()), options.operator_image)
        return _up(install=options.install or os.environ.get("CI") == "true", with_engine=options.engine)
    except UnavailableError as error:
        print(f"error: {error}", file=sys.stderr)
        return _UNAVAILABLE
    except (HarnessError, AssertionError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.kind", description="A kind cluster without a container registry.")
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start Docker and a cluster, install the operator, and leave them running")
    up.add_argument("--install", action="store_true", help="install missing Debian packages (CI=true does that too)")
    up.add_argument("--engine", action="store_true", help="with a real engine on the CPU for the pods (6 GB, once)")
    up.add_argument("--kubeconfig", type=Path, help="a cluster that is there already: only the chart is installed in it")
    up.add_argument("--operator-image", help="the operator's image in that cluster's registry, name:tag")
    commands.add_parser("down", help="delete the cluster, end the Docker daemon, and leave nothing but the cache")
    return parser


def _up(*, install: bool, with_engine: bool) -> int:
    began = time.monotonic()
    docker.require(install=install)
    folders = _engine_folders() if with_engine else {}
    client = docker.start(programs.programs() / programs.RUNTIME)
    node, operator_image = images.node_image(client), images.operator_image(client)
    running = cluster.running(node, folders) or cluster.create(client, node, folders)
    cluster.load(client, operator_image, *([images.engine_image(client)] if with_engine else []))
    running.apply(release.runtime_class())
    release.install(running, operator_image)
    say(f"The cluster is up after {time.monotonic() - began:.0f} s. `make kind-down` ends it.")
    print(f"export KUBECONFIG={running.kubeconfig} PATH={programs.programs()}:$PATH")
    return 0


def _engine_folders() -> dict[str, Path]:
    """What the workers see of this machine, by the path there: the engine, and models for it."""
    home = engine.folder()
    return {images.ENGINE_FOLDER: home, cluster.MODELS_FOLDER: engine.models(home)}


def _install(running: cluster.Cluster, image: str | None) -> int:
    if image is None:
        raise HarnessError("--kubeconfig needs --operator-image: what `make image` built, under a name that the cluster can pull")
    release.install(running, image)
    return 0


def _down() -> int:
    client = docker.Docker()
    if client.answers():
        cluster.delete(client)
    docker.stop()
    say("Nothing is left but the cache.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
