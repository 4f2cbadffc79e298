"""A cluster of the stock node image on this machine's own Docker, with a given engine image: where
images can be pulled.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.harness.errors import HarnessError
from tests.harness.waiting import wait_for
from tests.kind import cache, cluster, images, programs
from tests.kind.cluster import Cluster
from tests.kind.docker import ENGINE_VARIABLE, Docker
from tests.kind.errors import UnavailableError
from tests.kind.shell import run, step

NODE_VARIABLE = "SHARDWRIGHT_NODE_IMAGE"
"""The node image; without it the `kindest/node` that this version of kind is released with."""

HANDLER = "runc"
"""The runtime handler of the stock node for pods of our RuntimeClass: their engine is in their
image.
"""

_READY_SECONDS = 180


def asked() -> bool:
    """Say whether the environment names an engine image."""
    return bool(os.environ.get(ENGINE_VARIABLE))


def client() -> Docker:
    """Return a client of this machine's Docker.

    Raises:
        UnavailableError: it does not answer.
    """
    docker = Docker(os.environ)
    if not docker.answers():
        raise UnavailableError(
            f"{ENGINE_VARIABLE} is for the Docker of this machine, which does not answer: start "
            "it, or unset the variable"
        )
    return docker


def engine_image(docker: Docker) -> tuple[str, str]:
    """Return the name of the given image with our plugin in it, by which ranks say what they hold,
    and vLLM's version.
    """
    given = os.environ[ENGINE_VARIABLE]
    if not docker.has(given):
        with step(f"pulling {given}"):
            docker("pull", given)
    ask = (
        "import sysconfig, importlib.metadata as m; print(sysconfig.get_path('purelib'), "
        "m.version('vllm'))"
    )
    packages, version = _python(docker, given, "-c", ask).split()[-2:]
    return images.with_plugin(docker, given, packages.lstrip("/")), version.partition("+")[0]


def models(docker: Docker, image: str) -> Path:
    """Return a folder with the tiny models, made by the Python of the engine's image."""
    script = cache.HERE / "tiny_model.py"

    def make(target: Path) -> None:
        with step("making the tiny models", 20):
            mounts = ["--volume", f"{script}:/tiny_model.py:ro", "--volume", f"{target}:/made"]
            _python(
                docker,
                image,
                "-I",
                "/tiny_model.py",
                "/made",
                options=(*mounts, f"--user={os.geteuid()}"),
            )

    return cache.made(f"models-{cache.digest(script, image)}", make)


def _python(docker: Docker, image: str, *words: str, options: tuple[str, ...] = ()) -> str:
    return docker(
        "run", "--rm", "--network=none", *options, "--entrypoint", "python3", image, *words
    )


def kubeconfig() -> Path:
    """Where the kubeconfig of the cluster is."""
    return cache.folder() / "stock.kubeconfig"


def running(docker: Docker) -> Cluster | None:
    """Return the cluster, if it runs."""
    if cluster.NAME not in _kind(docker, "get", "clusters").split():
        return None
    found = Cluster(kubeconfig(), programs.programs())
    with contextlib.suppress(HarnessError):
        return found if all(map(cluster.is_ready, found.nodes())) else None
    return None


def create(docker: Docker, folders: Mapping[str, Path]) -> Cluster:
    """Create the cluster and return it when its nodes are Ready; `folders` are mounted into every
    worker.
    """
    delete(docker)
    image = os.environ.get(NODE_VARIABLE)
    settings = yaml.safe_dump(_settings(folders)).encode()
    with step(f"creating the cluster: 1 control plane, {cluster.WORKERS} workers", 60):
        words = [
            "--name",
            cluster.NAME,
            "--kubeconfig",
            str(kubeconfig()),
            "--config",
            "-",
            *(["--image", image] if image else []),
        ]
        _kind(docker, "create", "cluster", *words, data=settings)
        found = Cluster(kubeconfig(), programs.programs())
        wait_for(
            lambda: all(map(cluster.is_ready, found.nodes())),
            _READY_SECONDS,
            "the nodes to be Ready",
            1,
        )
        cluster.pretend_gpus(found, cluster.GPUS_PER_NODE)
    return found


def delete(docker: Docker) -> None:
    """Delete the cluster, if there is one."""
    _kind(docker, "delete", "cluster", "--name", cluster.NAME, "--kubeconfig", str(kubeconfig()))


def _settings(folders: Mapping[str, Path]) -> dict[str, Any]:
    nodes = [{"role": "control-plane"}, *(cluster.worker(folders) for _ in range(cluster.WORKERS))]
    return {"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "nodes": nodes}


def _kind(docker: Docker, *words: str, data: bytes | None = None) -> str:
    return run([programs.programs() / "kind", *words], data=data, environment=docker.environment)
