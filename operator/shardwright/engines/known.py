"""The engines whose speed can be predicted, deployable or not; other names are a ``KeyError``."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from shardwright.engines import sglang
from shardwright.engines.release_months import release_month
from shardwright.engines.trtllm import traits as trtllm
from shardwright.engines.vllm import traits as vllm
from shardwright.engines.vllm.eras import release_of
from shardwright.layouts.traits import EngineTraits

_RULES_READ_IN: Final = "0.33.0"


def traits_of(engine: str, version: str | None) -> EngineTraits:
    """Return what planning must know of an engine's version (None: the newest).

    Raises:
        KeyError: The engine is not known.
    """
    return replace(
        _ENGINES[engine](version), version=version or "", released=release_month(engine, version)
    )


def _vllm(version: str | None) -> EngineTraits:
    """Return vLLM's rules; a version that names no release has those of its month."""
    numbered = release_of(version or "") is not None
    return vllm.traits(
        version if version and numbered else release_month(vllm.NAME, version) or _RULES_READ_IN
    )


_ENGINES: Final[Mapping[str, Callable[[str | None], EngineTraits]]] = MappingProxyType(
    {vllm.NAME: _vllm, trtllm.NAME: trtllm.predicted, sglang.NAME: sglang.traits}
)

BY_LOWER_NAME: Final[Mapping[str, str]] = MappingProxyType(
    {name.lower(): name for name in _ENGINES}
)
"""The names of the engines by their lower case."""
