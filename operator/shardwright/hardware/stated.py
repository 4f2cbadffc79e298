"""What has the administrator stated about nodes: data sheets of GPUs, prices, which labels are
believed?
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from shardwright.hardware.gpus import Gpu
from shardwright.hardware.products import plain_name

NODE_SET: Final = "shardwright.io/node-set"
"""The label that says which installation of the operator plans on a node. A node has one value of
it, or none, so no two installations with different ones ever plan on the same node.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """Facts that hold for all nodes, whatever their labels say.

    ``gpus`` are what the catalogue lacks, by the plain name of their product. ``prices`` are of one
    GPU for an hour, by its id. ``label_prefix`` is of labels that no kubelet can write: a node's
    price and NVLink domain are believed under it alone (empty: from any label or annotation of
    ours, and from the node's clique). ``node_set`` is the value of :data:`NODE_SET` on nodes to
    plan on; empty: they must have none.
    """

    gpus: Mapping[str, Gpu] = field(default_factory=dict)
    prices: Mapping[str, float] = field(default_factory=dict)
    label_prefix: str = ""
    node_set: str = ""

    def price_of(self, gpu: Gpu) -> float | None:
        """Return the price of one GPU for an hour, a slice's by its share; None: not stated."""
        price = self.prices.get((gpu.whole or gpu).id)
        return price and price / gpu.slices


NONE = Stated()


def by_product(gpus: Iterable[Gpu]) -> Mapping[str, Gpu]:
    """Return stated GPUs by the plain name of their product."""
    return MappingProxyType({plain_name(gpu.id): gpu for gpu in gpus})
