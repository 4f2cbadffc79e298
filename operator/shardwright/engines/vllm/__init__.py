"""vLLM: one module for each part of :class:`~shardwright.engines.engine.EngineDefinition`."""

from shardwright.engines.vllm import (
    arguments,
    environment,
    families,
    policy,
    releases,
    traits,
)

__all__ = ["arguments", "environment", "families", "policy", "releases", "traits"]
