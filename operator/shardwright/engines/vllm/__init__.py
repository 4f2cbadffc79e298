"""vLLM, in one module for each part of :class:`~shardwright.engines.engine.EngineDefinition`.

``traits`` are what planning knows of it, with its ``eras`` of memory; ``arguments`` and
``environment`` say a plan in its words, and ``families`` the parsers of a model's answers.
``policy``, with its ``refusals``, classes every option of the tables in ``data``.
"""

from shardwright.engines.vllm import arguments, environment, families, policy, releases, traits

__all__ = ["arguments", "environment", "families", "policy", "releases", "traits"]
