"""TensorRT-LLM, in a module for each part of :class:`~shardwright.engines.engine.EngineDefinition`.

``traits`` are for planning; ``arguments`` (with a configuration file) and ``environment`` put a
plan into its words. ``policy`` classes every option and key of the tables in ``data``. ``releases``
has no image: it must be named.
"""

from shardwright.engines.trtllm import arguments, environment, policy, releases, traits

__all__ = ["arguments", "environment", "policy", "releases", "traits"]
