"""Which engine version an image holds; read from the tag where the tag tells it, else the user says it."""

import re
from typing import Final

from shardwright.errors import Problem

DEFAULT_IMAGE: Final = "vllm/vllm-openai:v0.33.0"
"""The image of a resource that names none: the newest vLLM whose options this release knows."""

DEFAULT_IMAGE_RUNS_ON: Final = frozenset({"nvidia.com/gpu"})
"""What the project's default images are built for (CUDA). Source: vLLM's installation guide; images for ROCm
are published elsewhere and with tags of their own."""

OLDEST_SUPPORTED: Final = (0, 32, 0)
"""First version that the launch form (native multi-node, both timeouts, drain) was run with; measured on 0.32.0."""

_VERSION: Final = re.compile(r"v?(\d{1,4}\.\d{1,4}\.\d{1,4})((?:rc|\.post)\d{1,3})?(?:[-+][\w.-]+)?")


def engine_version(image: str, version: str | None) -> str | Problem:
    """Return the vLLM version that ``image`` holds, as ``major.minor.patch``, or what to do about it.

    A tag is believed only where the image's own name starts with ``vllm``; ``version`` (what the user
    states) decides everywhere else and must not contradict such a tag.

    >>> engine_version("vllm/vllm-openai:v0.33.0-cu130", None)
    '0.33.0'
    >>> engine_version("registry.internal:5000/team/server@sha256:0f0f", "0.32.0")
    '0.32.0'
    """
    tagged = _tagged_version(image)
    stated = _parse(version) if version is not None else None
    if version is not None and stated is None:
        return _unreadable(version)
    if tagged and stated and tagged != stated:
        return _contradiction(tagged, stated)
    found = stated or tagged
    if found is None:
        return _unknown(image)
    return _too_old(found) or found


def _tagged_version(image: str) -> str | None:
    name, _, tag = image.partition("@")[0].rpartition("/")[2].partition(":")
    return _parse(tag) if name.startswith("vllm") else None


def _parse(text: str) -> str | None:
    match = _VERSION.fullmatch(text)
    return match.group(1) if match else None


def _too_old(version: str) -> Problem | None:
    if tuple(int(part) for part in version.split(".")) >= OLDEST_SUPPORTED:
        return None
    oldest = ".".join(map(str, OLDEST_SUPPORTED))
    return Problem(
        code="EngineVersionUnsupported",
        path="spec.engine.version",
        what=f"vLLM {version}",
        limit=f"is older than {oldest}",
        remedy=f"use an image with vLLM {oldest} or newer, for example {DEFAULT_IMAGE}",
    )


def _unknown(image: str) -> Problem:
    return Problem(
        code="EngineVersionUnknown",
        path="spec.engine.version",
        what=f"the image {image}",
        limit="does not tell its vLLM version",
        remedy='state it, for example version: "0.33.0"',
    )


def _unreadable(version: str) -> Problem:
    return Problem(
        code="EngineVersionInvalid",
        path="spec.engine.version",
        what=f"{version!r}",
        limit="must be major.minor.patch",
        remedy='write for example "0.33.0"',
    )


def _contradiction(tagged: str, stated: str) -> Problem:
    return Problem(
        code="EngineVersionMismatch",
        path="spec.engine.version",
        what=f"version {stated}",
        limit=f"contradicts the image tag, which says {tagged}",
        remedy="leave spec.engine.version out or correct the tag",
    )
