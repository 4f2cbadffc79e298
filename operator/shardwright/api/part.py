"""What every piece of the resource has in common."""

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Part(BaseModel):
    """A strict, immutable piece of the resource with camelCase names on the wire."""

    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_name=True, extra="forbid", strict=True, frozen=True, protected_namespaces=()
    )
