"""vLLM's releases and images, with the default one."""

import re
from types import MappingProxyType
from typing import Final

from shardwright.engines.versions import AMD, NVIDIA, Releases

NEWEST_DEFAULT: Final = "0.33.0"
DEFAULT_IMAGE: Final = f"vllm/vllm-openai:v{NEWEST_DEFAULT}"
"""The image of a resource that names none: the newest vLLM whose options this release knows."""

_ROCM_IMAGE: Final = f"vllm/vllm-openai-rocm:v{NEWEST_DEFAULT}"
"""The same for AMD's GPUs: vLLM's own release image for ROCm, with the same tags. Source: vLLM's
installation guide.
"""

OLDEST_SUPPORTED: Final = (0, 32, 0)
"""First version that the launch form (native multi-node, both timeouts, drain) was run with;
measured on 0.32.0.
"""


RELEASES: Final = Releases(
    engine="vLLM",
    repository=re.compile(r"(.*/)?vllm[^/]*"),
    oldest=OLDEST_SUPPORTED,
    example="0.33.0",
    default_images=MappingProxyType({NVIDIA: DEFAULT_IMAGE, AMD: _ROCM_IMAGE}),
    runs_on=frozenset({NVIDIA, AMD}),
    unproven=frozenset({AMD}),
)


def kept_default(said: str) -> str | None:
    """Return the default version at which a plan of record keeps the engine, None for the newest.

    ``said`` is the version that it names: empty if its spec left none open.

    >>> kept_default("0.32.0"), kept_default(NEWEST_DEFAULT), kept_default("")
    ('0.32.0', None, None)
    """
    return said if said not in ("", NEWEST_DEFAULT) else None
