"""The device mesh as a drawing: each node's GPUs, each rank's share of the model, and their links.

Of many nodes only the first are drawn; the others are named.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from shardwright.pages.document import (
    NONE,
    SECONDS,
    Document,
    Figure,
    at,
    figure,
    percent,
    range_text,
    rate,
)

MOST_NODES: Final = 32  #: the other nodes are only named
COLUMNS: Final = 4  #: GPUs side by side
TILE_WIDTH: Final = 77
TILE_HEIGHT: Final = 56
TILE_GAP: Final = 4
STAGE_COLOURS: Final = 6
BUS_HEIGHT: Final = 30  #: for a link below the GPUs, with its words

KINDS: Final = {
    "tensor": "Tensor",
    "context": "Shared K/V",
    "experts": "Experts",
    "pipeline": "Pipeline",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTile:
    """A GPU: position in pixels, words, and its stage's colour (empty: not this model's)."""

    x: int
    y: int
    title: str
    lines: tuple[str, ...]
    colour: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bus:
    """A link below a node's GPUs; ``reach`` is the length of its busy part (both in pixels)."""

    y: int
    reach: float
    colour: str
    leaves: bool  # it leads to other nodes
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A node: its GPUs, the links below them, and its stages in words."""

    name: str
    holds: str
    tiles: tuple[GpuTile, ...]
    buses: tuple[Bus, ...]
    stems: tuple[int, ...]  # columns that hang on the links, in pixels
    width: int
    height: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFrame:
    """Nodes that belong together; ``label`` is empty if all replicas share one row."""

    label: str
    cards: tuple[Card, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRow:
    """A kind of traffic with its link; ``reach`` is its bar's length, of 1000."""

    kind: str
    name: str
    where: str
    rate: Figure | None
    seconds: Figure
    busy: Figure
    reach: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRow:
    """A rank in words: its node, its stage, and the layers, heads and experts it holds."""

    rank: int
    node: str
    stage: int
    layers: str
    heads: str
    kv_heads: str
    experts: str


def replicas(document: Document) -> tuple[tuple[NodeFrame, ...], tuple[str, ...]]:
    """Return the drawn replicas, and the names of the nodes that are not drawn."""
    ranks: list[dict[str, Any]] = at(document, "explanation.ranks")
    per_node: dict[tuple[int, str], list[tuple[int, int | None, dict[str, Any] | None]]] = {}
    held: dict[str, int] = {}
    spans = document["plan"]["layout"]["nodesPerReplica"] > 1
    position: dict[int, int] = {}
    for node in at(document, "explanation.nodes"):
        group, name = node["group"], node["name"]
        first = position.get(group, 0) * document["plan"]["placement"]["gpusPerNode"]
        position[group] = position.get(group, 0) + 1
        held[name] = node["held"]
        gpus = per_node.setdefault((group if spans else -1, name), [])
        gpus[:] = _merged(gpus, node["stages"], group, ranks[first:])
    sections: dict[int, list[Card]] = {}
    for (group, name), gpus in list(per_node.items())[:MOST_NODES]:
        card = _card(name, gpus, held[name], many=len(position) > 1)
        sections.setdefault(group, []).append(_with_buses(card, document) if card.holds else card)
    several = spans and len(position) > 1
    drawn = tuple(
        NodeFrame(label=f"Replica {group}" if several else "", cards=tuple(cards))
        for group, cards in sections.items()
    )
    return drawn, tuple(name for _, name in list(per_node)[MOST_NODES:])


_Gpu = tuple[int, int | None, "dict[str, Any] | None"]  # replica, stage, rank


def _merged(
    before: Sequence[_Gpu],
    stages: Sequence[int | None],
    group: int,
    ranks: Sequence[dict[str, Any]],
) -> list[_Gpu]:
    left = iter(ranks)
    new = [(group, stage, next(left, None) if stage is not None else None) for stage in stages]
    return [
        gpu if gpu[1] is not None or index >= len(before) else before[index]
        for index, gpu in enumerate(new)
    ]


def _card(name: str, gpus: Sequence[_Gpu], held: int, *, many: bool) -> Card:
    tiles = tuple(
        _tile(index, gpu, others=index >= len(gpus) - held, many=many)
        for index, gpu in enumerate(gpus)
    )
    ranks = [rank for _, _, rank in gpus if rank]
    stages = sorted({(rank["stage"], *rank["layers"]) for rank in ranks})
    rows = -(-len(gpus) // COLUMNS)
    return Card(
        name=name,
        holds=", ".join(
            f"stage {stage}: layers {_span((first, last))}" for stage, first, last in stages
        ),
        tiles=tiles,
        buses=(),
        stems=(),
        width=min(len(gpus), COLUMNS) * (TILE_WIDTH + TILE_GAP) - TILE_GAP,
        height=rows * (TILE_HEIGHT + TILE_GAP) - TILE_GAP,
    )


def _with_buses(card: Card, document: Document) -> Card:
    """Add the links that a node's ranks use, those inside the node first."""
    found = sorted(at(document, "explanation.links"), key=lambda link: bool(link["betweenNodes"]))
    buses = tuple(
        Bus(
            y=card.height + 14 + BUS_HEIGHT * row,
            reach=round(card.width * min(1.0, max(0.01, link["busy"])), 2),
            colour=link["kind"],
            leaves=link["betweenNodes"],
            words=f"{link['name'] or 'link not known'} · {KINDS[link['kind']].lower()} "
            f"{percent(link['busy'])} busy",
        )
        for row, link in enumerate(found)
    )
    columns = (
        sorted({tile.x + TILE_WIDTH // 2 for tile in card.tiles if tile.colour}) if buses else ()
    )
    return replace(
        card,
        buses=buses,
        stems=tuple(columns),
        height=card.height + BUS_HEIGHT * len(buses) + 2 * bool(buses),
    )


def _tile(index: int, gpu: _Gpu, *, others: bool, many: bool) -> GpuTile:
    group, stage, rank = gpu
    row, column = divmod(index, COLUMNS)
    x, y = column * (TILE_WIDTH + TILE_GAP), row * (TILE_HEIGHT + TILE_GAP)
    if stage is None or rank is None:
        word = "in use" if others else "free"
        return GpuTile(x=x, y=y, title=f"GPU {word}", lines=(word,), colour="")
    replica = f"replica {group}, " if many else ""
    said = [f"layers {_span(rank['layers'])}", *_held(rank)]
    return GpuTile(
        x=x,
        y=y,
        title=f"{replica}rank {rank['rank']}: {'; '.join(said)}",
        lines=(f"{group}·{rank['rank']}" if many else str(rank["rank"]), *_short(rank)),
        colour=f"stage-{stage % STAGE_COLOURS}",
    )


def _held(rank: dict[str, Any]) -> Iterator[str]:
    for label, key in (("heads", "heads"), ("K/V heads", "kvHeads"), ("experts", "experts")):
        if rank[key] is not None:
            yield f"{label} {_span(rank[key])}"
    if rank["expertSlices"]:
        yield (
            f"1/{rank['expertSlices']} of every expert"
            if rank["expertSlices"] > 1
            else "every expert"
        )


def _short(rank: dict[str, Any]) -> Iterator[str]:
    if rank["heads"] is not None:
        yield f"heads {_span(rank['heads'])}"
    if rank["experts"] is not None:
        yield f"exp. {_span(rank['experts'])}"
    elif rank["expertSlices"]:
        yield (f"experts 1/{rank['expertSlices']}" if rank["expertSlices"] > 1 else "all experts")


def _span(ends: Sequence[int]) -> str:
    return range_text(*ends)


def link_rows(document: Document) -> tuple[LinkRow, ...]:
    """Return each kind of a token's traffic with its link."""
    found = at(document, "explanation.links")
    return tuple(
        _link(document, f"explanation.links.{index}", link) for index, link in enumerate(found)
    )


def _link(document: Document, path: str, link: dict[str, Any]) -> LinkRow:
    return LinkRow(
        kind=KINDS[link["kind"]],
        name=link["name"] or "link not known",
        where="between nodes" if link["betweenNodes"] else "inside a node",
        rate=figure(document, f"{path}.bytesPerSecond", rate) if link["bytesPerSecond"] else None,
        seconds=figure(document, f"{path}.seconds", SECONDS),
        busy=figure(document, f"{path}.busy", percent),
        reach=max(4, round(1000 * min(1.0, link["busy"]))),
    )


def rank_rows(document: Document) -> tuple[RankRow, ...]:
    """Return what every rank of a replica holds, as rows of a table."""
    names = [node["name"] for node in at(document, "explanation.nodes") if node["group"] == 0]
    return tuple(
        RankRow(
            rank=rank["rank"],
            node=names[rank["node"]] if rank["node"] < len(names) else "",
            stage=rank["stage"],
            layers=_span(rank["layers"]),
            heads=_span(rank["heads"]) if rank["heads"] else NONE,
            kv_heads=_span(rank["kvHeads"]) if rank["kvHeads"] else NONE,
            experts=_experts(rank),
        )
        for rank in at(document, "explanation.ranks")
    )


def _experts(rank: dict[str, Any]) -> str:
    if rank["experts"]:
        return _span(rank["experts"])
    return f"1/{rank['expertSlices']} of each" if rank["expertSlices"] else NONE
