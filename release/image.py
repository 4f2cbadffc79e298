"""The images of operator and router for both architectures, each as an OCI layout: its layers, and
what a registry shows of them.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, Final

from release import archive, debian, wheels
from release.places import ARCHITECTURES, ROOT, VERSION, WORK, commit, epoch

_INDEX: Final = "application/vnd.oci.image.index.v1+json"
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar+gzip"
_SYSTEM_PYTHON: Final = PurePosixPath(f"/usr/bin/python{wheels.PYTHON}")
_STANDARD_LIBRARY: Final = PurePosixPath(f"/usr/lib/python{wheels.PYTHON}")

RUN_AS: Final = "65532:65532"
ENVIRONMENT: Final = {
    "PATH": "/opt/shardwright/bin:/usr/bin:/bin",
    "LOGNAME": "shardwright",  # kopf asks for the name of its user; this uid has none in the image
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt",
}


@dataclass(frozen=True)
class Recipe:
    """What an image has over Debian's Python, and what a container of it starts: the wheels of a
    lock file, and one that is built here.
    """

    name: str
    description: str
    lock: Path
    command: tuple[str, ...]
    ports: tuple[str, ...]

    @property
    def archive(self) -> str:
        """The file of the image in a release."""
        return f"shardwright-{self.name}-{VERSION}.oci.tar"


OPERATOR: Final = Recipe(
    name="operator",
    description="Plans, renders and keeps alive sharded LLM serving on Kubernetes",
    lock=wheels.LOCK,
    command=("shardwright-operator",),
    ports=("8080/tcp", "8081/tcp"),
)
ROUTER: Final = Recipe(
    name="router",
    description="vllm-router, which brings requests to the groups of a model",
    lock=ROOT / "requirements-router.lock",
    # The operator's ConfigMap has the program that starts it.
    command=("python", "-m", "vllm_router.launch_router", "--help"),
    ports=("8000/tcp", "29000/tcp"),
)


@dataclass(frozen=True)
class Built:
    """An image of one architecture: the folders of its layers, the lowest first, and its digest in
    the layout.
    """

    architecture: str
    layers: tuple[Path, ...]
    digest: str

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of the files of each layer."""
        return tuple(archive.size(layer) for layer in self.layers)


def build(recipe: Recipe, wheel: Path | None, layout: Path) -> tuple[Built, ...]:
    """Write the image of every architecture into an OCI layout, under an index with the version as
    its name.

    wheel: that is built here, if the image has one.
    """
    shutil.rmtree(layout, ignore_errors=True)
    (layout / "blobs" / "sha256").mkdir(parents=True)
    (layout / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    images = tuple(
        _build_one(recipe, architecture, wheel, layout) for architecture in ARCHITECTURES
    )
    manifests = [
        _described(layout, _MANIFEST, image.digest)
        | {"platform": {"architecture": image.architecture, "os": "linux"}}
        for image in images
    ]
    index = _blob(
        layout,
        _json(
            {
                "schemaVersion": 2,
                "mediaType": _INDEX,
                "manifests": manifests,
                "annotations": _labels(recipe),
            }
        ),
    )
    named = _described(layout, _INDEX, index) | {
        "annotations": {"org.opencontainers.image.ref.name": VERSION}
    }
    (layout / "index.json").write_bytes(
        _json({"schemaVersion": 2, "mediaType": _INDEX, "manifests": [named]})
    )
    return images


def index_digest(layout: Path) -> str:
    """Return the digest by which both architectures are pulled."""
    return str(json.loads((layout / "index.json").read_text())["manifests"][0]["digest"])


def save(layout: Path, file: Path) -> None:
    """Write a layout as one file, which containerd and Docker load."""
    with file.open("wb") as stream:
        archive.write_tar(layout, stream, epoch())


def unpacked(image: Built, folder: Path) -> Path:
    """Return a folder with the layers of an image on top of each other."""
    shutil.rmtree(folder, ignore_errors=True)
    for layer in image.layers:
        shutil.copytree(layer, folder, symlinks=True, dirs_exist_ok=True)
    return folder


def unpack_tar(stream: Any, folder: Path) -> None:
    """Fill a folder with the files of an image that was exported."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tarfile.open(fileobj=stream, mode="r|") as exported:
        exported.extractall(folder, filter="tar")


def _build_one(recipe: Recipe, architecture: str, wheel: Path | None, layout: Path) -> Built:
    layers = tuple(_layers(recipe, architecture, wheel))
    blobs = [archive.packed(layer, epoch()) for layer in layers]
    config = _config(recipe, architecture, [f"sha256:{archive.tar_digest(blob)}" for blob in blobs])
    described = [_described(layout, _LAYER, _blob(layout, blob)) for blob in blobs]
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": _described(layout, _CONFIG, _blob(layout, _json(config))),
        "layers": described,
        "annotations": _labels(recipe),
    }
    return Built(architecture, layers, _blob(layout, _json(manifest)))


def _layers(recipe: Recipe, architecture: str, wheel: Path | None) -> Iterator[Path]:
    folder = WORK / "layers" / recipe.name / architecture
    base, packages, ours = (folder / name for name in ("base", "packages", "ours"))
    shutil.rmtree(folder, ignore_errors=True)
    debian.unpack(architecture, base)
    wheels.compile_all(base, _STANDARD_LIBRARY)
    yield base
    wheels.make_environment(packages, _SYSTEM_PYTHON)
    locked = wheels.download(architecture, lock=recipe.lock)
    wheels.install(locked.glob("*.whl"), packages, programs=False)
    wheels.compile_all(packages, wheels.HOME)
    yield packages
    if wheel:
        wheels.install([wheel], ours, programs=True)
        wheels.compile_all(ours, wheels.HOME)
        yield ours


def _config(recipe: Recipe, architecture: str, layers: list[str]) -> dict[str, Any]:
    created = _created()
    made = (
        "Debian packages of release/debian.lock",
        f"wheels of {recipe.lock.name}",
        f"shardwright {VERSION}",
    )[: len(layers)]
    return {
        "architecture": architecture,
        "os": "linux",
        "created": created,
        "config": {
            "User": RUN_AS,
            "Env": [f"{key}={value}" for key, value in ENVIRONMENT.items()],
            "Cmd": list(recipe.command),
            "ExposedPorts": {port: {} for port in recipe.ports},
            "WorkingDir": "/",
            "Labels": _labels(recipe),
        },
        "rootfs": {"type": "layers", "diff_ids": layers},
        "history": [{"created": created, "created_by": text} for text in made],
    }


def _labels(recipe: Recipe) -> dict[str, str]:
    return {
        "org.opencontainers.image.title": f"shardwright {recipe.name}",
        "org.opencontainers.image.description": recipe.description,
        "org.opencontainers.image.version": VERSION,
        "org.opencontainers.image.revision": commit(),
        "org.opencontainers.image.created": _created(),
        "org.opencontainers.image.licenses": "Apache-2.0",
    }


def _created() -> str:
    return datetime.fromtimestamp(epoch(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _described(layout: Path, media_type: str, digest: str) -> dict[str, Any]:
    return {
        "mediaType": media_type,
        "digest": digest,
        "size": (layout / "blobs" / digest.replace(":", "/")).stat().st_size,
    }


def _blob(layout: Path, content: bytes) -> str:
    digest = hashlib.sha256(content).hexdigest()
    (layout / "blobs" / "sha256" / digest).write_bytes(content)
    return f"sha256:{digest}"


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
