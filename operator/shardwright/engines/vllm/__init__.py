"""vLLM, in one module for each part of :class:`~shardwright.engines.engine.EngineDefinition`.

``traits`` are for planning, with the ``eras`` of its memory; ``arguments`` and ``environment`` put
a plan into its words, and ``families`` has the parsers of a model's answers. ``policy``, with
``refusals``, classes every option of the tables in ``data``.
"""

from shardwright.engines.vllm import arguments, environment, families, policy, releases, traits

__all__ = ["arguments", "environment", "families", "policy", "releases", "traits"]
