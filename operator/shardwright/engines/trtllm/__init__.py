"""TensorRT-LLM, in one module for each part of its entry in :mod:`shardwright.engines.registry`.

``traits`` are for planning; ``arguments`` (with a configuration file) and ``environment`` put a
plan into its words. ``policy`` classes every option and key of the tables in ``data``. ``releases``
has no image: the resource must name one.
"""

from shardwright.engines.trtllm import arguments, environment, policy, releases, traits

__all__ = ["arguments", "environment", "policy", "releases", "traits"]
