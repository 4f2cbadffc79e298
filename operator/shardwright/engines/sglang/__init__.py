"""SGLang, in one module for each part of its entry in :mod:`shardwright.engines.registry`.

``traits`` are for planning; ``arguments`` and ``environment`` put a plan into its words. ``policy``
classes every option of the table in ``data``, which its own parser wrote (``tests/engine``);
``releases`` name its images. Only a release with a table is told more than the plan.
"""

from shardwright.engines.sglang import arguments, environment, policy, releases, traits

__all__ = ["arguments", "environment", "policy", "releases", "traits"]
