"""Whether the configs of models that nobody has given are read from the hub, by a Job in the namespace of the model."""

from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints

from shardwright.api.parts import IMAGE, Part
from shardwright.api.violations import read_part

CONFIG_FETCH: Final = "configFetch"


class ConfigFetch(Part):
    """The setting as a whole: without an image nothing is read."""

    image: Annotated[str, StringConstraints(max_length=512, pattern=IMAGE)] | None = Field(
        default=None, description="The operator's own image, which the Job runs."
    )
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = Field(
        default="IfNotPresent", description="When the kubelet pulls it."
    )


class _Setting(Part):
    config_fetch: ConfigFetch = Field(alias=CONFIG_FETCH)


def read_config_fetch(described: object) -> ConfigFetch:
    """Return the setting ``configFetch``.

    Raises:
        InputError: every violation, with its path.
    """
    return read_part(_Setting, {CONFIG_FETCH: described}).config_fetch
