"""Which GPU of the catalogue does a product label, a cloud's name or an AMD device id mean?

Names are matched whole or up to a dash, so ``NVIDIA-GB300-WS`` is not a GB300 and ``A100X`` not an
A100. Sources: NVIDIA/k8s-device-plugin@1b826acc internal/lm, ROCm/k8s-device-plugin@ed764684,
dstackai/gpuhunt constraints.py, and the label dumps in tests/data/nodes.
"""

import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Final

_RULES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    (r"vr200(-nvl(72|144)?)?$|vr-nvl(72|144)$", ("VR200-NVL-280GB",)),
    (r"gb300(?!-ws)", ("GB300-NVL-278GB",)),
    (r"gb200", ("GB200-NVL-186GB",)),
    (r"gh200-144gb?", ("GH200-144GB",)),
    (r"gh200-(120|480)gb?", ("GH200-96GB",)),
    (r"gh200", ("GH200-96GB", "GH200-144GB")),
    (r"gb10", ("GB10-128GB",)),
    (r"b300", ("B300-SXM-270GB",)),
    (r"b200", ("B200-SXM-180GB",)),
    (r"h200-nvl", ("H200-NVL-141GB",)),
    (r"h200", ("H200-SXM-141GB",)),
    (r"h100-nvl(?!ink)", ("H100-NVL-94GB",)),
    (r"h100-pcie", ("H100-PCIE-80GB",)),
    (r"h100(-(sxm5?|nvlink|mega|hbm3|80gb))*$", ("H100-SXM-80GB",)),
    (r"h20-3e", ("H20-3e-141GB",)),
    (r"h20", ("H20-96GB",)),
    (r"h800(?!-(pcie|nvl))", ("H800-80GB",)),
    (r"a100-80gb-pcie|a100-pcie-80gb", ("A100-PCIE-80GB",)),
    (r"a100-40gb-pcie|a100-pcie-40gb", ("A100-PCIE-40GB",)),
    (r"a100-pcie", ("A100-PCIE-40GB", "A100-PCIE-80GB")),
    (r"(tesla-)?a100-((sxm4?|nvlink)-)?40gb", ("A100-SXM4-40GB",)),
    (r"(tesla-)?a100-((sxm4?|nvlink)-)?80gb", ("A100-SXM4-80GB",)),
    (r"(tesla-)?a100", ("A100-SXM4-40GB", "A100-SXM4-80GB")),
    (r"a10g", ("A10G-24GB",)),
    (r"a10(?!-\d+[abcq])", ("A10-24GB",)),
    (r"a30", ("A30-24GB",)),
    (r"a40", ("A40-48GB",)),
    (r"l40s", ("L40S-48GB",)),
    (r"l40", ("L40-48GB",)),
    (r"l20", ("L20-48GB",)),
    (r"l4", ("L4-24GB",)),
    (r"rtx-pro-6000-blackwell-workstation-edition", ("RTX-PRO-6000-WS-96GB",)),
    (r"rtx-pro-(server-)?6000(-blackwell)?(-server-edition)?$", ("RTX-PRO-6000-BSE-96GB",)),
    (r"rtx-pro-5000-72gb", ("RTX-PRO-5000-72GB",)),
    (r"rtx-pro-5000$", ("RTX-PRO-5000-48GB", "RTX-PRO-5000-72GB")),
    (r"rtx-pro-4500(-blackwell)?$", ("RTX-PRO-4500-32GB",)),
    (r"rtx-a6000$", ("RTX-A6000-48GB",)),
    (r"rtx-6000-ada", ("RTX-6000-Ada-48GB",)),
    (r"(geforce-)?rtx-3090$", ("RTX-3090-24GB",)),
    (r"(geforce-)?rtx-4090$", ("RTX-4090-24GB",)),
    (r"(geforce-)?rtx-5090$", ("RTX-5090-32GB",)),
    (r"(tesla-)?t4", ("T4-16GB",)),
    (r"(tesla-)?v100-(sxm[23]|dgxs)-16gb", ("V100-SXM2-16GB",)),
    (r"(tesla-)?v100-(sxm[23]|dgxs)-32gb", ("V100-SXM2-32GB",)),
    (r"(tesla-)?v100-(sxm[23]|dgxs)|(tesla-)?v100$", ("V100-SXM2-16GB", "V100-SXM2-32GB")),
    (r"(instinct-)?mi210", ("MI210-64GB",)),
    (r"(instinct-)?mi250x", ("MI250X-128GB",)),
    (r"(instinct-)?mi250", ("MI250-128GB",)),
    (r"(instinct-)?mi300x", ("MI300X-192GB",)),
    (r"(instinct-)?mi325x?", ("MI325X-256GB",)),
    (r"(instinct-)?mi350x?", ("MI350X-288GB",)),
    (r"(instinct-)?mi355x?", ("MI355X-288GB",)),
    (r"(instinct-)?mi455x?", ("MI455X-432GB",)),
)
_GKE: Final = MappingProxyType(
    {"nvidia-tesla-a100": "A100-SXM4-40GB", "nvidia-tesla-v100": "V100-SXM2-16GB"}
)
"""GKE names that say less than they mean. Source: cloud.google.com/kubernetes-engine GPU machine
families.
"""

AMD_DEVICE_IDS: Final = MappingProxyType(
    {
        "740f": "MI210-64GB",
        "740c": "MI250-128GB",
        "7408": "MI250X-128GB",
        "74a1": "MI300X-192GB",
        "74a9": "MI300X-192GB",
        "74b5": "MI300X-192GB",  # SR-IOV function: carries no product name
        "74bd": "MI300X-192GB",
        "74a5": "MI325X-256GB",
        "75a0": "MI350X-288GB",
        "75a3": "MI355X-288GB",
    }
)
"""PCI device id (lower-case hex) to catalogue id. Source: dstackai/gpuhunt constraints.py."""


_OPEN_FORMS: Final = re.compile(
    r"(nvidia[ -])?(a100|h100|h200|v100)(?!.*(sxm|pcie|nvl))", re.IGNORECASE
)
"""Names of Azure's instance catalogue that say neither board nor card: H100 is the SXM of ND and
the NVL of NC.
"""

NAMELESS: Final = "nvidia-graphics-device"
"""The name by NVIDIA's driver of every GPU that is newer than itself, as :func:`plain_name` has
it.
"""


def names_form(key: str, name: str) -> bool:
    """Return whether a Karpenter label's value says which form of a product it means.

    On AWS the name alone decides (there are no PCIe cards of these products), on Azure it does not.

    >>> (
    ...     names_form("karpenter.azure.com/sku-gpu-name", "H100"),
    ...     names_form("karpenter.azure.com/sku-gpu-name", "T4"),
    ... )
    (False, True)
    """
    return not (key.startswith("karpenter.azure.com/") and _OPEN_FORMS.match(name))


def candidates(product: str, names: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the catalogue ids that a name may mean: none, one, or rows that only memory tells
    apart.

    ``names`` holds the exact names of the catalogue in lower case with dashes.

    >>> candidates("Tesla-V100-SXM2-16GB-N", {})
    ('V100-SXM2-16GB',)
    """
    name = plain_name(product)
    if name in _GKE:
        return (_GKE[name],)
    if name in names:
        return names[name]
    bare = re.sub(r"^(nvidia|amd)-", "", name)
    # The first rule counts, so longer names stand before their beginnings.
    return next((ids for rule, ids in _RULES if _pattern(rule).match(bare)), ())


@cache
def _pattern(rule: str) -> re.Pattern[str]:
    return re.compile(rf"(?:{rule})(?=$|-)")


def plain_name(product: str) -> str:
    """Return a name in lower case with dashes, without sharing and MIG suffixes."""
    name = re.sub(r"[\s_]+", "-", product.strip()).removesuffix("-SHARED")
    return re.sub(r"-MIG-[0-9A-Za-z.+]+$", "", name).lower()
