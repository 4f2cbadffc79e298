"""What a user's arguments for SGLang fix in a plan."""

from collections.abc import Mapping

from shardwright.engines.options import Pins
from shardwright.engines.parser_values import COMPUTED_IN
from shardwright.engines.policy import Policy, canonical
from shardwright.layouts.layout import EngineOverrides


def read_pins(arguments: Mapping[str, object], policy: Policy) -> Pins:
    """Return the pins among checked arguments.

    >>> from shardwright.engines.sglang.policy import POLICY
    >>> read_pins({"dtype": "half", "page_size": 1}, POLICY) == Pins(
    ...     dtype="fp16", told=EngineOverrides(uncounted=("page-size",))
    ... )
    True
    """
    named = {canonical(name): value for name, value in arguments.items()}
    return Pins(
        dtype=COMPUTED_IN.get(str(named.get("dtype"))),
        told=EngineOverrides(uncounted=tuple(sorted(named.keys() & policy.uncounted.keys()))),
    )
