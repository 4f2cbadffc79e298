"""Values of parts, each of them a value with names: other fields for them, wherever they belong."""

from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

Whole = TypeVar("Whole")


def with_parts(whole: Whole, **changes: Any) -> Whole:
    """Return the value with other fields: its own, or those of the part that has one of the name.

    Raises:
        TypeError: No part has a field of such a name.
    """
    own = {item.name: getattr(whole, item.name) for item in fields(whole)}  # type: ignore[arg-type]  # a dataclass
    changed = {name: value for name, value in changes.items() if name in own}
    left = {name: value for name, value in changes.items() if name not in own}
    for name, part in own.items():
        if name in changed or not is_dataclass(part) or isinstance(part, type):
            continue
        inside = {item.name for item in fields(part)} & left.keys()
        if inside:
            changed[name] = replace(part, **{item: left.pop(item) for item in inside})
    if left:
        message = f"no part has {', '.join(sorted(left))}"
        raise TypeError(message)
    return replace(whole, **changed)  # type: ignore[type-var]  # a dataclass
