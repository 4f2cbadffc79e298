"""The software bill of materials of an image, in CycloneDX: its Debian packages and its Python
distributions.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from cyclonedx.model import HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.contact import OrganizationalEntity
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from release import debian, wheels
from release.places import VERSION, epoch
from tests.harness.errors import HarnessError


def write(name: str, architecture: str, root: Path, digest: str, file: Path) -> int:
    """Write what is in the root filesystem of an image; return the number of its components.

    digest: of the image.
    """
    image = Component(
        name=f"shardwright-{name}",
        version=VERSION,
        type=ComponentType.CONTAINER,
        bom_ref="image",
        hashes=[HashType.from_composite_str(digest)],
        purl=PackageURL("oci", None, name, digest, {"arch": architecture, "tag": VERSION}),
    )
    bom = Bom(components=[*_of_debian(architecture, root), *_of_python(root)])
    bom.metadata.component = image
    bom.metadata.timestamp = datetime.fromtimestamp(epoch(), UTC)
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_OID, digest)  # the same for the same image
    bom.register_dependency(image, bom.components)
    text = JsonV1Dot6(bom).output_as_string(indent=1)
    if errors := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise HarnessError(f"{file.name} is not CycloneDX 1.6: {errors}")
    file.write_text(text + "\n")
    return len(bom.components)


def named(file: Path) -> set[str]:
    """Return the package URLs in a bill of materials."""
    document: dict[str, Any] = json.loads(file.read_text())
    return {component["purl"] for component in document["components"]}


def _of_debian(architecture: str, root: Path) -> Iterator[Component]:
    """The packages that the image itself says it has."""
    locked = {package.name: package for package in debian.locked(architecture)}
    for status in sorted((root / "var" / "lib" / "dpkg" / "status.d").iterdir()):
        fields = dict(re.findall(r"^ ?(\w[\w-]*): (.*)$", status.read_text(), re.MULTILINE))
        package = locked[fields["Package"]]
        purl = PackageURL(
            "deb",
            "debian",
            package.name,
            fields["Version"],
            {"arch": architecture, "distro": debian.SUITE},
        )
        yield Component(
            name=package.name,
            version=fields["Version"],
            type=ComponentType.LIBRARY,
            bom_ref=str(purl),
            purl=purl,
            supplier=OrganizationalEntity(name=fields["Maintainer"]),
            hashes=[HashType.from_composite_str(f"sha256:{package.sha256}")],
        )


def _of_python(root: Path) -> Iterator[Component]:
    for found in sorted(
        distributions(path=[str(wheels.environment(root))]), key=lambda item: item.name.lower()
    ):
        purl = PackageURL("pypi", None, found.name.lower().replace("_", "-"), found.version)
        licence = _licence(found)
        yield Component(
            name=found.name,
            version=found.version,
            type=ComponentType.LIBRARY,
            bom_ref=str(purl),
            purl=purl,
            licenses=[DisjunctiveLicense(name=licence)] if licence else (),
        )


def _licence(found: Distribution) -> str:
    """The licence that a distribution states, in one line; empty where it states none."""
    metadata = found.metadata.json
    stated = str(metadata.get("license_expression") or metadata.get("license") or "")
    classified = [
        value.rpartition(" :: ")[2]
        for value in metadata.get("classifier", ())
        if value.startswith("License ::")
    ]
    line = stated.strip().splitlines()[0] if stated.strip() else ", ".join(classified)
    return line[:100]
