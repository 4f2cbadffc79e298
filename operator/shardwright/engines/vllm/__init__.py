"""vLLM, in one module for each part of its entry in :mod:`shardwright.engines.registry`.

``traits`` are for planning, with the eras of its memory; ``arguments`` (with the parsers of a
model's answers) and ``environment`` put a plan into its words. ``policy`` classes every option of
the tables in ``data``, and ``releases`` names its images.
"""

from shardwright.engines.vllm import arguments, environment, policy, releases, traits

__all__ = ["arguments", "environment", "policy", "releases", "traits"]
