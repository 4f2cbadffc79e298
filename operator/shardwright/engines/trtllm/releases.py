"""TensorRT-LLM's releases: its image must be named."""

import re
from types import MappingProxyType
from typing import Final

from shardwright.engines.versions import NVIDIA, Releases

RELEASES: Final = Releases(
    engine="TensorRT-LLM",
    repository=re.compile(r"(.*/)?tensorrt-llm(/release|[^/]*)"),
    oldest=(1, 2, 0),  # the release whose options and keys are listed; engine-measurements.md 10
    example="1.2.1",
    default_images=MappingProxyType(
        {}
    ),  # NVIDIA's registry has it under terms of its own, and it must hold sshd for groups of pods
    runs_on=frozenset({NVIDIA}),
)
