"""What a cluster for the tests stands on: a Docker of our own, this machine's Docker, or a cluster
that is there already.

Each gives a cluster with the operator installed by its chart, and ends what it began.
"""

from __future__ import annotations

import os
import time
from argparse import Namespace
from pathlib import Path
from typing import Protocol

from tests.harness.errors import HarnessError
from tests.kind import cluster, docker, engine, images, programs, release, stock
from tests.kind.cluster import Cluster
from tests.kind.shell import say

_KEEP = "keep"


class Ground(Protocol):
    """A way to get a cluster."""

    def up(self, *, with_engine: bool) -> Cluster:
        """Return the cluster with the operator in it, and with an engine for the pods; made where
        it is not up.
        """

    def keep(self) -> None:
        """Remember that somebody wants it to stay: tests do not end it."""

    def is_kept(self) -> bool:
        """Say whether somebody wants it to stay."""

    def down(self) -> None:
        """End it, as far as it is ours."""

    def mpi_image(self) -> str | None:
        """Return the image with Open MPI and ssh, None where there is none."""


def ground(options: Namespace) -> Ground:
    """Return what the options and the environment ask for."""
    if getattr(options, "kubeconfig", None):
        return Given(options.kubeconfig, options.operator_image)
    return (
        Stock()
        if stock.asked()
        else Own(install=getattr(options, "install", False) or os.environ.get("CI") == "true")
    )


def docker_in_use() -> docker.Docker:
    """Return the Docker whose containers are the nodes."""
    return stock.client() if stock.asked() else docker.Docker()


def _stock_mark() -> Path:
    return stock.kubeconfig().with_suffix(f".{_KEEP}")


class Own:
    """A Docker daemon in namespaces of its own; nodes and images made from Go modules and Debian
    packages, no registry.
    """

    def __init__(self, *, install: bool) -> None:
        self.install = install

    def up(self, *, with_engine: bool) -> Cluster:
        """Start the daemon, make what is not cached, and install the chart."""
        began = time.monotonic()
        docker.require(install=self.install)
        folders = self._folders() if with_engine else {}
        client = docker.start(programs.programs() / programs.RUNTIME)
        node, operator_image = (
            images.node_image(client),
            images.operator_image(client, images.python_base(client)),
        )
        engine_image = images.engine_image(client) if with_engine else None
        mpi_image = images.mpi_image(client) if with_engine else None
        running = cluster.running(node, folders) or cluster.create(client, node, folders)
        cluster.restore(running)
        cluster.load(client, *filter(None, (operator_image, engine_image, mpi_image)))
        running.apply(release.runtime_class(cluster.RUNTIME_CLASS))
        release.install(running, operator_image, "Never", engine_image)
        say(f"The cluster is up after {time.monotonic() - began:.0f} s. `make kind-down` ends it.")
        return running

    def keep(self) -> None:
        """Write it down beside the daemon's socket: it goes with the daemon."""
        (docker.RUN / _KEEP).touch()

    def is_kept(self) -> bool:
        """Say whether the daemon answers and was started to stay: what a killed run has left is
        ours to end.
        """
        return docker.Docker().answers() and (docker.RUN / _KEEP).exists()

    def down(self) -> None:
        """Delete the cluster and end the daemon, whatever becomes of the cluster: it has no other
        place to be.
        """
        client = docker.Docker()
        try:
            if client.answers():
                cluster.delete(client)
        finally:
            docker.stop_and_check()
        say("Nothing is left but the cache.")

    def mpi_image(self) -> str:
        """Return the image, made where it is missing."""
        return images.mpi_image(docker.Docker())

    @staticmethod
    def _folders() -> dict[str, Path]:
        """What the workers see of this machine, by the path there: the engine, what it reads
        object stores with, and models for it.
        """
        home = engine.folder()
        return {
            images.ENGINE_FOLDER: home,
            images.STREAMER_FOLDER: engine.streamer(home),
            cluster.MODELS_FOLDER: engine.models(home),
        }


class Stock:
    """The stock node image on this machine's Docker, and the engine image that the environment
    names.
    """

    def up(self, *, with_engine: bool) -> Cluster:
        """Pull what is missing, make the cluster, and install the chart."""
        client = stock.client()
        engine_image, version = (
            stock.engine_image(client) if with_engine else (None, engine.VERSION)
        )
        folders = (
            {cluster.MODELS_FOLDER: stock.models(client, engine_image)} if engine_image else {}
        )
        operator_image = images.operator_image(client, None)
        running = stock.running(client) or stock.create(client, folders)
        cluster.restore(running)
        cluster.load(client, *filter(None, (operator_image, engine_image)))
        running.apply(release.runtime_class(stock.HANDLER))
        release.install(running, operator_image, "Never", engine_image, version)
        return running

    def keep(self) -> None:
        """Write it down beside the kubeconfig."""
        _stock_mark().touch()

    def is_kept(self) -> bool:
        """Say whether there is a cluster that was made to stay."""
        return stock.running(stock.client()) is not None and _stock_mark().exists()

    def down(self) -> None:
        """Delete the cluster; the daemon is not ours."""
        _stock_mark().unlink(missing_ok=True)
        stock.delete(stock.client())

    def mpi_image(self) -> None:
        """Return none: it is made from Debian's packages, for nodes of ours."""


class Given:
    """A cluster that is there already; the operator's image comes from a registry that it can pull
    from.
    """

    def __init__(self, kubeconfig: Path, operator_image: str | None) -> None:
        self.cluster, self.image = (Cluster(kubeconfig, programs.programs()), operator_image)

    def up(self, *, with_engine: bool) -> Cluster:
        """Install the chart, with the engine image that the environment names."""
        if self.image is None:
            raise HarnessError(
                "--kubeconfig needs --operator-image: what `make image` built, under a name that "
                "the cluster can pull"
            )
        if with_engine:
            cluster.require_pretended(self.cluster)
        release.install(
            self.cluster, self.image, "IfNotPresent", os.environ.get(docker.ENGINE_VARIABLE)
        )
        return self.cluster

    def keep(self) -> None:
        """Do nothing: it was there before."""

    def is_kept(self) -> bool:
        """Say so: it was there before."""
        return True

    def down(self) -> None:
        """Leave it alone, with the chart in it: nobody knows here whether it was there before."""

    def mpi_image(self) -> None:
        """Return none: nothing can be put on its nodes."""
