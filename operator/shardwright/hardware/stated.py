"""What an administrator states of nodes: GPUs from their data sheets, prices, and which labels are believed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from shardwright.hardware.gpus import Gpu
from shardwright.hardware.products import plain_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """What holds for all nodes, whatever they say of themselves.

    ``gpus`` are those that the catalogue lacks, by the plain name of their product. ``prices`` are what one GPU costs for an
    hour, by the id of the GPU. ``label_prefix`` is where labels begin that no kubelet can write: the price and the NVLink
    domain of a node are believed under it alone (empty: as any label or annotation of ours says, and the node's clique).
    """

    gpus: Mapping[str, Gpu] = field(default_factory=dict)
    prices: Mapping[str, float] = field(default_factory=dict)
    label_prefix: str = ""


NONE = Stated()


def by_product(gpus: Iterable[Gpu]) -> Mapping[str, Gpu]:
    """Return stated GPUs by the plain name of their product."""
    return MappingProxyType({plain_name(gpu.id): gpu for gpu in gpus})
