"""Which engine version an image holds, by its tag or else by what the user says.

An unknown version, a tag that contradicts a stated version, and a version older than the launch
form was run with are refused.

When a version of an engine was released: its minor version's month, or the string's own.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from shardwright.errors import Problem
from shardwright.hardware.capabilities import Capability

NVIDIA: Final = "nvidia.com/gpu"
AMD: Final = "amd.com/gpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Releases:
    """The releases of an engine and their images.

    ``repository`` matches names of images whose tags are versions, ``oldest`` is the first
    supported version, ``example`` is for messages. ``default_images`` are for resources that name
    none, by the GPU resource they are built for (none: one must be named). ``runs_on`` are the
    resources the engine runs on at all, ``unproven`` those for which
    no image of it has been started here.
    """

    engine: str
    repository: re.Pattern[str]
    oldest: tuple[int, int, int]
    example: str
    default_images: Mapping[str, str]
    runs_on: frozenset[str]
    unproven: frozenset[str] = frozenset()

    @property
    def default_image(self) -> str:
        """Return the first default image, empty if there is none."""
        return next(iter(self.default_images.values()), "")


_BUILT_FOR: Final = (
    (re.compile(r"(^|[/:._-])rocm"), AMD),
    (re.compile(r"^vllm/vllm-openai([:@]|$)|(^|[/:._-])cuda|[:-]cu\d{3}\b"), NVIDIA),
)
"""Patterns in the names of images, and the GPUs that such an image is built for, first match first:
names on Docker Hub without their registry, others with a slash in its place, for an image under
vLLM's own name in another registry may be anything. Source: the names that vLLM, AMD and NVIDIA
publish under.
"""

_DOCKER_HUB: Final = re.compile(r"^(index\.)?docker\.io/")
_REGISTRY: Final = re.compile(r"^([^/]*[.:][^/]*|localhost)/")

_WITH_EFA: Final = re.compile(r":[\w.-]*-efa(?:[-.][\w.-]*)?(?:@|$)", re.ASCII)
"""The tag of images that NVIDIA builds for AWS's network. Source: the images of Dynamo 1.6."""

_VERSION_IN_ROCM_TAG: Final = re.compile(r"(?:.*_)?vllm_(\d{1,4}\.\d{1,4}\.\d{1,4})(?:_.*)?")
"""AMD's own tags name the versions of all that is inside: rocm7.0.0_vllm_0.11.2_20251210."""

_VERSION: Final = re.compile(
    r"v?(\d{1,4}\.\d{1,4}\.\d{1,4})((?:rc|\.post)\d{1,3})?(?:[-+][\w.-]+)?"
)


def engine_version(image: str, version: str | None, releases: Releases) -> str | Problem:
    """Return the engine version in an image, as ``major.minor.patch``, or the problem.

    A tag counts only if the image's own name is the engine's; elsewhere the user's ``version``
    decides, which must not contradict such a tag.

    >>> from shardwright.engines.vllm.releases import RELEASES
    >>> engine_version("vllm/vllm-openai:v0.33.0-cu130", None, RELEASES)
    '0.33.0'
    >>> engine_version("registry.internal:5000/server@sha256:0f", "0.32.0", RELEASES)
    '0.32.0'
    """
    if not image:
        return _no_image(releases)
    tagged = _tagged_version(image, releases)
    stated = _parse(version) if version is not None else None
    if version is not None and stated is None:
        return _unreadable(version, releases)
    if tagged and stated and tagged != stated:
        return _contradiction(tagged, stated)
    found = stated or tagged
    if found is None:
        return _unknown(image, releases)
    return _too_old(found, releases) or found


def built_for(image: str) -> str | None:
    """Return the GPU resource that an image's name says it is built for, None if it says none.

    >>> (
    ...     built_for("vllm/vllm-openai:v0.33.0"),
    ...     built_for("rocm/vllm:rocm7.0.0_vllm_0.33.0_20261101"),
    ... )
    ('nvidia.com/gpu', 'amd.com/gpu')
    >>> built_for("registry.internal/team/server:stable") is None
    True
    """
    name = _REGISTRY.sub("/", _DOCKER_HUB.sub("", image))
    return next((resource for pattern, resource in _BUILT_FOR if pattern.search(name)), None)


def plugins_in(image: str) -> tuple[Capability, ...]:
    """Return the network plugins that an image's name says it has; the engines' own have none.

    >>> (
    ...     plugins_in("registry.example/vllm-runtime:1.6.0-efa"),
    ...     plugins_in("vllm/vllm-openai:v0.33.0"),
    ... )
    ((<Capability.EFA: 'EFA'>,), ())
    """
    return (Capability.EFA,) if _WITH_EFA.search(image) else ()


def is_newer(version: str, other: str) -> bool:
    """Return whether one version, ``major.minor.patch``, is newer than another.

    >>> is_newer("0.33.0", "0.9.2"), is_newer("0.33.0", "0.33.0")
    (True, False)
    """
    return _numbers(version) > _numbers(other)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _tagged_version(image: str, releases: Releases) -> str | None:
    repository, colon, tag = image.partition("@")[0].rpartition(":")
    # The colon of a registry's port is none of a tag.
    if not colon or "/" in tag or not releases.repository.fullmatch(repository):
        return None
    named = _VERSION_IN_ROCM_TAG.fullmatch(tag) if "rocm" in tag else None
    return named.group(1) if named else _parse(tag)


def _parse(text: str) -> str | None:
    match = _VERSION.fullmatch(text)
    return match.group(1) if match else None


def _too_old(version: str, releases: Releases) -> Problem | None:
    if tuple(int(part) for part in version.split(".")) >= releases.oldest:
        return None
    oldest = ".".join(map(str, releases.oldest))
    example = f", for example {releases.default_image}" if releases.default_image else ""
    return Problem(
        code="EngineVersionUnsupported",
        path="spec.engine.version",
        what=f"{releases.engine} {version}",
        limit=f"is older than {oldest}",
        remedy=f"use an image with {releases.engine} {oldest} or newer{example}",
    )


def _no_image(releases: Releases) -> Problem:
    return Problem(
        code="EngineImageUnnamed",
        path="spec.engine.image",
        what=f"the image of {releases.engine}",
        limit="must be named",
        gap="there is no default for it",
        remedy="name one that your cluster may pull, and its version, for example version: "
        f'"{releases.example}'
        '"',
    )


def _unknown(image: str, releases: Releases) -> Problem:
    return Problem(
        code="EngineVersionUnknown",
        path="spec.engine.version",
        what=f"the image {image}",
        limit=f"does not tell its {releases.engine} version",
        remedy=f'state it, for example version: "{releases.example}"',
    )


def _unreadable(version: str, releases: Releases) -> Problem:
    return Problem(
        code="EngineVersionInvalid",
        path="spec.engine.version",
        what=f"{version!r}",
        limit="must be major.minor.patch",
        remedy=f'write for example "{releases.example}"',
    )


def _contradiction(tagged: str, stated: str) -> Problem:
    return Problem(
        code="EngineVersionMismatch",
        path="spec.engine.version",
        what=f"version {stated}",
        limit=f"contradicts the image tag, which says {tagged}",
        remedy="leave spec.engine.version out or correct the tag",
    )


_MONTHS: Final[Mapping[str, Mapping[tuple[int, int], str]]] = MappingProxyType(
    {
        "vLLM": {
            (0, 4): "2024-03",
            (0, 5): "2024-06",
            (0, 6): "2024-09",
            (0, 7): "2025-01",
            (0, 8): "2025-03",
            (0, 9): "2025-05",
            (0, 10): "2025-07",
            (0, 11): "2025-10",
            (0, 12): "2025-12",
            (0, 13): "2025-12",
            (0, 14): "2026-01",
            (0, 15): "2026-01",
            (0, 16): "2026-02",
            (0, 17): "2026-03",
        },
        "TensorRT-LLM": {
            (0, 9): "2024-04",
            (0, 10): "2024-06",
            (0, 11): "2024-07",
            (0, 12): "2024-09",
            (0, 13): "2024-09",
            (0, 14): "2024-11",
            (0, 15): "2024-12",
            (0, 16): "2024-12",
            (0, 17): "2025-02",
            (0, 18): "2025-03",
            (0, 19): "2025-05",
            (0, 20): "2025-06",
            (0, 21): "2025-07",
            (1, 0): "2025-09",
            (1, 1): "2025-11",
            (1, 2): "2026-01",
        },
        "SGLang": {
            (0, 1): "2024-01",
            (0, 2): "2024-07",
            (0, 3): "2024-09",
            (0, 4): "2024-12",
            (0, 5): "2025-09",
        },
    }
)
"""Month of the first release of every minor version. Source: the projects' release pages and the
dates of groundtruth/throughput_dev.csv.
"""

_DATE: Final = re.compile(r"(20[2-3]\d)(?:-?(0[1-9]|1[0-2]))?")
_MINOR: Final = re.compile(r"v?(\d{1,3})\.(\d{1,3})")


def release_month(engine: str, version: str | None) -> str:
    """Return a version's month (``2026-02``, for a year ``2024-12``), empty if unknown.

    >>> (
    ...     release_month("vLLM", "nightly-dev-20260216-d3bae71e"),
    ...     release_month("TensorRT-LLM", "0.12.0"),
    ... )
    ('2026-02', '2024-09')
    >>> (
    ...     release_month("vLLM", "2024 (see paper)"),
    ...     release_month("vLLM", "nightly"),
    ...     release_month("vLLM", "0.33.0"),
    ... )
    ('2024-12', '', '')
    """
    text = version or ""
    if dated := _DATE.search(text):
        return f"{dated[1]}-{dated[2] or '12'}"
    numbered = _MINOR.match(text)
    if numbered is None:
        return ""
    minor = (int(numbered[1]), int(numbered[2]))
    months = _MONTHS[engine]
    return next((month for listed, month in months.items() if listed >= minor), "")
