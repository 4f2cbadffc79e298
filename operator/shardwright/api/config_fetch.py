"""Whether configs nobody has given are read from the hub, by a Job in the model's namespace."""

from typing import Final

from pydantic import Field

from shardwright.api.parts import Part
from shardwright.api.violations import read_part

CONFIG_FETCH: Final = "configFetch"


class ConfigFetch(Part):
    """The setting as a whole."""

    enabled: bool = Field(default=False, description="Whether they are read.")


class _Setting(Part):
    config_fetch: ConfigFetch = Field(alias=CONFIG_FETCH)


def read_config_fetch(described: object) -> ConfigFetch:
    """Return the setting ``configFetch``.

    Raises:
        InputError: every violation, with its path.
    """
    return read_part(_Setting, {CONFIG_FETCH: described}).config_fetch
