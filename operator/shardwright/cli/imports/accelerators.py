"""Accelerators that are no GPUs of NVIDIA or AMD: what runs on them is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from shardwright.cli.imports.draft import Content
from shardwright.errors import InputError, Problem

_OTHER_ACCELERATOR: Final = re.compile(
    r"google\.com/tpu|tpu\.google\.com|gke-tpu-|aws\.amazon\.com/neuron|neuron\.aws|habana\.ai/"
    r"|gpu\.intel\.com|huawei\.com/ascend|cambricon\.com/|qualcomm\.com/qaic|tenstorrent\.com/"
    r"|furiosa\.ai/|rebellions\.ai/",
    re.IGNORECASE,
)
"""Resources, labels and device classes. Source: the vendors' device plugins and DRA drivers."""

_KINDS: Final = re.compile(r"(deviceClassName|gpuType|requestGPUType|device-class)$")
"""Fields and annotations whose value is a kind of device."""

_IMAGE: Final = re.compile(r"vllm[^/]*-(tpu|neuron|gaudi|hpu|xpu)\b")
"""Names of images that are built for such an accelerator. Source: vLLM's and the vendors' own."""

_CLAIMS: Final = frozenset({"ResourceClaim", "ResourceClaimTemplate"})


def refuse_other_accelerators(content: Content, others: Sequence[Content], source: str) -> None:
    """Refuse an object that runs on other accelerators, also by claims among the ``others``.

    Raises:
        InputError: it does.
    """
    claims = [item for item in others if item.get("kind") in _CLAIMS] if _claims(content) else []
    for named in (found for item in (content, *claims) for found in _named(item)):
        raise InputError(
            [
                Problem(
                    code="ImportUnclear",
                    what=f"{source} runs on {named}",
                    limit="and only GPUs of NVIDIA and AMD are planned",
                    remedy="leave it where it is",
                )
            ]
        )


def _claims(value: Any) -> bool:
    """Return whether pods of it claim devices."""
    if isinstance(value, Mapping):
        return "resourceClaims" in value or any(map(_claims, value.values()))
    return isinstance(value, list) and any(map(_claims, value))


def _named(value: Any) -> Iterator[str]:
    """Yield what names another accelerator, in fields' names and in values that say a kind."""
    if isinstance(value, list):
        for item in value:
            yield from _named(item)
    if not isinstance(value, Mapping):
        return
    for key, child in value.items():
        told = str(child) if _KINDS.search(str(key)) else ""
        image = str(child) if key == "image" and _IMAGE.search(str(child)) else ""
        yield from (word for word in (str(key), told) if _OTHER_ACCELERATOR.search(word))
        yield from filter(None, [image])
        yield from _named(child)
