"""The administrator's settings for nodes: prices, the trusted label prefix, the nodes to plan on.

A price of a GPU that neither the catalogue nor ``gpus`` has is refused.
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Final

from pydantic import Field, StringConstraints

from shardwright.api.parts import Part
from shardwright.api.violations import read_part
from shardwright.errors import InputError, Problem
from shardwright.hardware.gpus import Gpu, load_gpus
from shardwright.hardware.stated import NODE_SET, Stated, by_product

_Price = Annotated[float, Field(ge=0.000_1, le=1_000_000, allow_inf_nan=False)]


class NodeSettings(Part):
    """Prices of GPUs, the prefix of labels that no kubelet can write, and the nodes that are
    planned on.
    """

    trusted_label_prefix: Annotated[
        str, StringConstraints(max_length=254, pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?$")
    ] = Field(
        default="",
        description="Prefix of labels, up to the slash, under which "
        "alone a node's price and NVLink domain are believed.",
    )
    gpu_hour_prices: dict[str, _Price] = Field(
        default_factory=dict,
        max_length=256,
        description="Price of one GPU for an hour, by the id of the GPU.",
    )
    node_set: Annotated[
        str, StringConstraints(max_length=40, pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$")
    ] = Field(
        default="",
        description=f"Value of the label {NODE_SET} of the "
        "nodes that are planned on; empty: those without it.",
    )


NAMES: Final = tuple(str(field.alias) for field in NodeSettings.model_fields.values())
"""The settings that it is read from."""


def read_stated(content: Mapping[str, Any], gpus: tuple[Gpu, ...]) -> Stated:
    """Return what all settings state of nodes; ``gpus`` are those that the catalogue lacks.

    Raises:
        InputError: every violation, with its path.
    """
    found = read_part(NodeSettings, {name: content.get(name) for name in NAMES})
    problems = list(_unknown(found.gpu_hour_prices, {*load_gpus(), *(gpu.id for gpu in gpus)}))
    if problems:
        raise InputError(problems)
    return Stated(
        gpus=by_product(gpus),
        prices=found.gpu_hour_prices,
        label_prefix=found.trusted_label_prefix,
        node_set=found.node_set,
    )


def _unknown(prices: Mapping[str, float], ids: set[str]) -> Iterator[Problem]:
    for name in prices:
        if name not in ids:
            close = get_close_matches(name, sorted(ids), n=1)
            yield Problem(
                code="GpuUnknown",
                path=f"gpuHourPrices.{name}",
                what=name,
                limit="must be the id of a GPU of the catalogue, or of gpus",
                remedy=f"did you mean {close[0]}?" if close else "see shardwright gpus",
            )
