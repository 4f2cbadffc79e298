"""GPUs that an administrator states: a data sheet, and nothing that anybody has measured."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from shardwright.hardware.gpus import Gpu
from shardwright.hardware.products import plain_name

OwnGpus = Mapping[str, Gpu]
"""Stated GPUs by the plain name of their product."""

NONE: OwnGpus = MappingProxyType({})


def by_product(gpus: Iterable[Gpu]) -> OwnGpus:
    """Return stated GPUs by the plain name of their product."""
    return MappingProxyType({plain_name(gpu.id): gpu for gpu in gpus})
