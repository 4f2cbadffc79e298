"""The types of the spec's fields: names, quantities, values, and the base of every object.

A value of another type is refused, whatever it could be read as, and so is an unknown field.

A rule between fields of one object, as CEL for the API server and as a predicate for us.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, TypeVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel

from shardwright.hardware.suitability import PROFILE_PATTERN

DNS_SUBDOMAIN = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$"
LABEL_KEY = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
LABEL_KEY_MAX_LENGTH = 317
"""Unit: characters: a prefix of 253, a slash, a name of 63. Source: apimachinery,
``IsQualifiedName``.
"""
IMAGE = r"^[a-z0-9][A-Za-z0-9._-]*(:[0-9]+/[a-z0-9._-]+)?(/[a-z0-9._-]+)*(:[A-Za-z0-9_][A-Za-z0-9._-]*)?(@sha256:[0-9a-f]{64})?$"  # noqa: E501 - a pattern is not broken
"""A registry with its port, if there is one, a path, a tag, a digest; no scheme."""
QUANTITY = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"
QUANTITY_MAX_LENGTH = 32
QUANTITY_MAX = 2**53
ARGUMENT_MAX_LENGTH = 4096
ARGUMENT_MAX_DEPTH = 16
ARGUMENT_MAX_ITEMS = 256

ObjectName = Annotated[str, StringConstraints(max_length=253, pattern=DNS_SUBDOMAIN)]
QueueName = Annotated[str, StringConstraints(max_length=63, pattern=DNS_SUBDOMAIN)]
"""Name of a queue: also the value of a label."""
MigProfile = Annotated[str, StringConstraints(max_length=32, pattern=rf"^{PROFILE_PATTERN}$")]
DataKey = Annotated[str, StringConstraints(max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
LabelValue = Annotated[
    str, StringConstraints(max_length=63, pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$")
]
Tokens = Annotated[int, Field(ge=1, le=10_485_760)]
Degree = Annotated[int, Field(ge=1, le=1024)]


def _quantity_as_text(value: object) -> object:
    # True is an int to Python.
    if not isinstance(value, int) or isinstance(value, bool):
        return value
    if not 0 <= value <= QUANTITY_MAX:
        raise ValueError(f"must be from 0 to {QUANTITY_MAX:,}")
    return str(value)


Quantity = Annotated[
    str,
    StringConstraints(max_length=QUANTITY_MAX_LENGTH, pattern=QUANTITY),
    BeforeValidator(_quantity_as_text),
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "minimum": 0,
            "maximum": QUANTITY_MAX,
            "maxLength": QUANTITY_MAX_LENGTH,
            "pattern": QUANTITY,
        }
    ),
]
"""A Kubernetes quantity; a bare integer is one, too."""


def _check_argument(value: object) -> object:
    if not isinstance(value, str | int | float | list | dict):
        raise ValueError("must be a string, a number, a boolean, a list or an object")  # noqa: TRY004  # pydantic collects ValueErrors
    if isinstance(value, list | dict) and len(value) > ARGUMENT_MAX_ITEMS:
        raise ValueError(f"has {len(value)} items, at most {ARGUMENT_MAX_ITEMS} are allowed")
    if _is_deeper(value, ARGUMENT_MAX_DEPTH):
        raise ValueError(f"is nested deeper than {ARGUMENT_MAX_DEPTH} levels")
    length = len(value if isinstance(value, str) else json.dumps(value, separators=(",", ":")))
    if length > ARGUMENT_MAX_LENGTH:
        raise ValueError(f"is {length} characters long, at most {ARGUMENT_MAX_LENGTH} are allowed")
    return value


def _is_deeper(value: object, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels < 0 or any(_is_deeper(each, levels - 1) for each in inner)


ArgumentValue = Annotated[
    Any,
    AfterValidator(_check_argument),
    WithJsonSchema(
        {
            "x-kubernetes-preserve-unknown-fields": True,
            "description": "A string, a number, a boolean, a list or an object.",
            "maxLength": ARGUMENT_MAX_LENGTH,
            "maxItems": ARGUMENT_MAX_ITEMS,
            "maxProperties": ARGUMENT_MAX_ITEMS,
        }
    ),
]
"""What an engine option may be set to. A structural schema has no union of types but this; the
length of lists and objects, as JSON, is ours to judge.
"""


class Part(BaseModel):
    """A strict, immutable piece of the resource with camelCase names on the wire."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        extra="forbid",
        strict=True,
        frozen=True,
        protected_namespaces=(),
        defer_build=True,  # most of it is read as part of something larger, or not at all
    )


APart = TypeVar("APart", bound=Part)


def unsaid(part: type[APart]) -> APart:
    """Return a part that nobody has written: all its fields have their defaults.

    Defaults need no check, so the checks of such parts are never built: of 21 a first plan builds 3
    (measured). All share one such part: its lists are never changed.
    """
    return cast("APart", _unsaid(part))


@cache
def _unsaid(part: type[Part]) -> Part:
    return part.model_construct()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A condition on the objects at ``path`` (``[]``: on every item of a list).

    ``field`` is the field under it for the user to change, as in the API server's ``fieldPath``.
    ``figures`` says the rule in the numbers of the object at hand, which CEL cannot.
    """

    code: str
    path: str
    field: str
    cel: str
    message: str
    holds: Callable[[Any], bool]
    figures: Callable[[Any], str] | None = None
