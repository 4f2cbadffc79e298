"""The images of the cluster: the node with the control plane's components in it, the operator, the
thin engine image.
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.harness import build
from tests.harness.waiting import wait_for
from tests.kind import cache, engine, programs, roots
from tests.kind.docker import Docker
from tests.kind.shell import run, step

ENGINE_FOLDER, STREAMER_FOLDER = "/opt/engine", "/opt/streamer"
_PLUGIN_FOLDER = "usr/local/lib/ranks"
_NODE_FILES = cache.HERE / "node"
_EXECUTABLE, _PLAIN = 0o755, 0o644
_PINNED = "--label=io.cri-containerd.pinned=pinned"

_Files = Mapping[str, tuple[bytes, int]]
_Links = Iterable[tuple[str, str]]


def node_image(docker: Docker) -> str:
    """The name of the node image; made where Docker has none."""
    folder = programs.programs()
    root = roots.root(docker, "node", roots.NODE)
    image = f"shardwright-kind/node:{cache.digest(folder.name, root, _NODE_FILES, Path(__file__))}"
    if not docker.has(image):
        with step("making the node image", 60):
            _make_node(docker, image, root, folder)
    return image


def engine_image(docker: Docker) -> str:
    """The name of the engine image: Python, a compiler, and a `vllm` that runs what is in the
    folder at ENGINE_FOLDER.

    With a plugin of the engine by which every rank says what it holds.
    """
    root = roots.root(docker, "engine", roots.ENGINE)
    files = _engine_files()
    image = (
        f"shardwright-kind/engine:{cache.digest(root, *(content for content, _ in files.values()))}"
    )
    if not docker.has(image):
        _add(docker, image, root, files, [])
    return image


def _engine_files() -> _Files:
    # Its own Python, on the packages of the environment in the folder: whichever Python 3.11 has
    # made that.
    packages = f"{ENGINE_FOLDER}/{engine.PACKAGES}:/{_PLUGIN_FOLDER}:{STREAMER_FOLDER}"
    wrapper = (
        f"#!/bin/sh\nexport PYTHONPATH={packages}\n"
        'exec python3.11 -m vllm.entrypoints.cli.main "$@"\n'
    )
    return {
        "usr/local/bin/vllm": (wrapper.encode(), _EXECUTABLE),
        "usr/lib/python3/dist-packages/engine.pth": (
            f"{ENGINE_FOLDER}/{engine.PACKAGES}\n".encode(),
            _PLAIN,
        ),
        **_plugin(_PLUGIN_FOLDER),
    }


def _plugin(folder: str) -> _Files:
    """The plugin of the engine by which every rank says what it holds, as an installed package in a
    folder.
    """
    described = f"{folder}/rank_report-1.dist-info"
    return {
        f"{folder}/rank_report.py": (
            (cache.HERE / "ranks" / "rank_report.py").read_bytes(),
            _PLAIN,
        ),
        f"{described}/METADATA": (
            b"Metadata-Version: 2.1\nName: rank-report\nVersion: 1\n",
            _PLAIN,
        ),
        f"{described}/entry_points.txt": (
            b"[vllm.general_plugins]\nrank_report = rank_report:register\n",
            _PLAIN,
        ),
    }


def with_plugin(docker: Docker, given: str, packages: str) -> str:
    """The name of a given engine image with our plugin among its packages, which are in a folder of
    it.
    """
    files = _plugin(packages)
    identity = docker("image", "inspect", "--format", "{{.Id}}", given)
    image = f"shardwright-kind/engine:{cache.digest(identity, *(content for content, _ in files.values()))}"
    if not docker.has(image):
        _add(docker, image, given, files, [])
    return image


def mpi_image(docker: Docker) -> str:
    """The name of an image with real Open MPI, ssh and sshd, in which `trtllm-serve` is the
    stand-in of `make test-mpi`.

    Its launcher prints its rank: TensorRT-LLM itself needs GPUs.
    """
    root = roots.root(docker, "mpi", roots.MPI)
    bin_folder = cache.ROOT / "tests" / "mpi" / "bin"
    programs = ("trtllm-llmapi-launch", "trtllm-serve")
    files = {
        f"usr/local/bin/{name}": ((bin_folder / name).read_bytes(), _EXECUTABLE)
        for name in programs
    }
    image = (
        f"shardwright-kind/mpi:{cache.digest(root, *(content for content, _ in files.values()))}"
    )
    if not docker.has(image):
        _add(docker, image, root, files, [])
    return image


def python_base(docker: Docker) -> str:
    """The name of a base for the operator's image: Debian with Python."""
    return roots.root(docker, "python", roots.PYTHON)


def operator_image(docker: Docker, base: str | None) -> str:
    """The name of the operator's image, built by operator/Dockerfile from wheels of this checkout,
    without a network.

    base: None for the Dockerfile's own.
    """
    dockerfile, lock = (cache.ROOT / "operator" / "Dockerfile", cache.ROOT / "requirements.lock")
    sources = (cache.ROOT / "operator" / "shardwright", cache.ROOT / "pyproject.toml")
    image = f"shardwright-kind/operator:{cache.digest(base or '', dockerfile, lock, *_committed(sources))}"
    if not docker.has(image):
        with step("building the operator's image", 40):
            _build_operator(docker, image, base)
    return image


def _committed(sources: Iterable[Path]) -> list[Path]:
    """Files that go into the wheel; what Python writes beside them does not count."""
    files = [
        file
        for source in sources
        for file in (sorted(source.rglob("*")) if source.is_dir() else [source])
    ]
    return [file for file in files if file.is_file() and "__pycache__" not in file.parts]


def _build_operator(docker: Docker, image: str, base: str | None) -> None:
    lock = cache.ROOT / "requirements.lock"
    wheels = cache.made(f"wheels-{cache.digest(lock, sys.version)}", _download)
    with cache.scratch("wheel") as dist:
        run(
            [
                sys.executable,
                "-m",
                "build",
                "--no-isolation",
                "--wheel",
                "--outdir",
                dist,
                cache.ROOT,
            ]
        )
        files = {f"dist/{file.name}": (file.read_bytes(), _PLAIN) for file in dist.glob("*.whl")}
    files |= {
        f"dist/wheels/{file.name}": (file.read_bytes(), _PLAIN) for file in wheels.glob("*.whl")
    }
    files |= {"requirements.lock": (lock.read_bytes(), _PLAIN)}
    files |= {"Dockerfile": ((cache.ROOT / "operator" / "Dockerfile").read_bytes(), _PLAIN)}
    options = ["--build-arg", f"BASE={base}"] if base else []
    docker("build", "--network=none", *options, "--tag", image, "-", data=_tar(files, []))


def _download(folder: Path) -> None:
    options = [
        "--quiet",
        "--disable-pip-version-check",
        "--only-binary=:all:",
        "--no-deps",
        "--require-hashes",
    ]
    run(
        [
            sys.executable,
            "-m",
            "pip",
            "download",
            *options,
            "--dest",
            folder,
            "-r",
            cache.ROOT / "requirements.lock",
        ]
    )


# -- the node
#
#
#
#
# -------------------------------------------------------------------------------------------------------------


def _make_node(docker: Docker, image: str, root: str, folder: Path) -> None:
    components = programs.component_images(folder)
    _make_components(docker, components, root, folder)
    bare = f"{image}-bare"
    _add(docker, bare, root, _node_files(folder, components), _node_links())
    name = image.replace("/", "-").replace(":", "-")
    options = [
        "--privileged",
        "--network=none",
        "--stop-signal=SIGRTMIN+3",
        "--entrypoint=sleep",
    ]  # commit keeps the signal
    docker("run", "--detach", "--name", name, *options, bare, "infinity")
    try:
        _import_components(docker, name, list(components.values()))
        entry = 'ENTRYPOINT ["/usr/local/bin/entrypoint"]'
        docker("commit", "--change", entry, "--change", "ENV container=docker", name, image)
    finally:
        docker("rm", "--force", "--volumes", name)
        docker("rmi", bare, *components.values())


def _import_components(docker: Docker, container: str, images: list[str]) -> None:
    """Let containerd itself take the images in, without unpacking: an overlay on an overlay would
    not do.
    """
    docker(
        "exec",
        "--detach",
        container,
        "sh",
        "-c",
        "echo $$ >/run/containerd.pid; exec containerd >/run/containerd.log 2>&1",
    )
    wait_for(
        lambda: docker("exec", container, "ctr", "version"), 30, "containerd in the node image", 0.3
    )
    target = ["exec", "--interactive", container, "ctr", "--namespace=k8s.io", "images", "import"]
    docker.pipe(["save", *images], [*target, _PINNED, "--all-platforms", "--no-unpack", "-"])
    docker(
        "exec",
        container,
        "sh",
        "-c",
        "kill $(cat /run/containerd.pid); while kill -0 $(cat /run/containerd.pid); do sleep 0.1; "
        "done",
    )


def _make_components(
    docker: Docker, components: Mapping[str, str], root: str, folder: Path
) -> None:
    """One program per image, under the names that kubeadm asks for; kube-proxy needs the tools of
    the node.
    """
    for name, image in components.items():
        if name in ("kube-proxy", programs.FIREWALL):
            _add(
                docker,
                image,
                root,
                {f"usr/local/bin/{name}": ((folder / name).read_bytes(), _EXECUTABLE)},
                [],
            )
            continue
        place = {"coredns": "coredns", "pause": "pause"}.get(name, f"usr/local/bin/{name}")
        content = _tar({place: ((folder / name).read_bytes(), _EXECUTABLE)}, [])
        docker(
            "import",
            "--change",
            f'ENTRYPOINT ["/{place}"]',
            "--change",
            "ENV PATH=/usr/local/bin",
            "-",
            image,
            data=content,
        )


def _node_files(folder: Path, components: Mapping[str, str]) -> _Files:
    binaries = {
        "usr/bin/kubelet",
        "usr/bin/kubeadm",
        "usr/bin/kubectl",
        *(f"opt/cni/bin/{name}" for name in programs.CNI),
    }
    binaries |= {
        f"usr/local/bin/{name}"
        for name in ("containerd", "containerd-shim-runc-v2", "ctr", programs.RUNTIME)
    }
    files = {
        place: ((folder / Path(place).name).read_bytes(), _EXECUTABLE) for place in sorted(binaries)
    }
    settings = (
        (_NODE_FILES / "containerd.toml").read_text().replace("@SANDBOX@", components["pause"])
    )
    spec = json.dumps(programs.engine_spec(folder, ENGINE_FOLDER, STREAMER_FOLDER))
    return files | {
        "usr/local/bin/entrypoint": ((_NODE_FILES / "entrypoint.sh").read_bytes(), _EXECUTABLE),
        "etc/containerd/config.toml": (settings.encode(), _PLAIN),
        "etc/containerd/engine-spec.json": (spec.encode(), _PLAIN),
        "etc/containerd/cni.template": ((_NODE_FILES / "cni.template").read_bytes(), _PLAIN),
        "etc/systemd/system/containerd.service": (
            (_NODE_FILES / "containerd.service").read_bytes(),
            _PLAIN,
        ),
        "etc/systemd/system/kubelet.service": (
            (_NODE_FILES / "kubelet.service").read_bytes(),
            _PLAIN,
        ),
        "kind/version": (build.KUBERNETES_VERSION.encode(), _PLAIN),
        "kind/manifests/default-storage.yaml": (
            (_NODE_FILES / "storage.yaml").read_bytes(),
            _PLAIN,
        ),
    }


def _node_links() -> _Links:
    units = "etc/systemd/system"
    wanted = [
        (f"{units}/multi-user.target.wants/{name}.service", f"/{units}/{name}.service")
        for name in ("containerd", "kubelet")
    ]
    masked = (
        "systemd-udevd",
        "systemd-logind",
        "systemd-timesyncd",
        "apt-daily",
        "e2scrub_reap",
        "getty@",
        "console-getty",
    )
    return [
        *wanted,
        (f"{units}/default.target", "/lib/systemd/system/multi-user.target"),
        *((f"{units}/{name}.service", "/dev/null") for name in masked),
    ]


def _add(docker: Docker, image: str, root: str, files: _Files, links: _Links) -> None:
    """Commit `root` with these files in it, each with its mode; no container runs."""
    container = docker("create", "--network=none", root, "true").strip()
    try:
        docker("cp", "-", f"{container}:/", data=_tar(files, links))
        docker("commit", container, image)
    finally:
        docker("rm", "--volumes", container)


def _tar(files: _Files, links: _Links) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, (content, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
        for name, target in links:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
    return buffer.getvalue()
