"""SGLang's releases and images, with the default one."""

import re
from types import MappingProxyType
from typing import Final

from shardwright.engines.versions import NVIDIA, Releases

NEWEST_DEFAULT: Final = "0.5.23"
DEFAULT_IMAGE: Final = f"lmsysorg/sglang:v{NEWEST_DEFAULT}"
"""The image of a resource that names none. Source: SGLang's installation guide."""

RELEASES: Final = Releases(
    engine="SGLang",
    repository=re.compile(r"(.*/)?sglang[^/]*"),
    # The first whose option --attn-dp-size stands for what --enable-dp-attention was.
    oldest=(0, 5, 23),
    example=NEWEST_DEFAULT,
    default_images=MappingProxyType({NVIDIA: DEFAULT_IMAGE}),
    runs_on=frozenset({NVIDIA}),
)
