"""TensorRT-LLM: one module for each part of
:class:`~shardwright.engines.engine.EngineDefinition`.
"""

from shardwright.engines.trtllm import arguments, environment, policy, releases, traits

__all__ = ["arguments", "environment", "policy", "releases", "traits"]
