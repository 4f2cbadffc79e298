"""Laws of where replicas are put on the nodes of a pool."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from shardwright.layouts.layout import Layout
from shardwright.layouts.placing import Over, Shelf
from tests.support.builders_plan import a_pool, an_nvl72_pool

LAYOUTS = [
    Layout(tensor=2),
    Layout(tensor=4),
    Layout(tensor=8),
    Layout(tensor=8, pipeline=2),
    Layout(tensor=8, pipeline=3),
    Layout(tensor=4, pipeline=4),
]


@given(
    racks=st.booleans(),
    layout=st.sampled_from(LAYOUTS),
    replicas=st.integers(1, 12),
    zones=st.text("ab-", min_size=18, max_size=18),
    free=st.lists(st.integers(0, 8), min_size=18, max_size=18),
    standing=st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 9)),
)
def test_to_spread_replicas_changes_where_they_are_and_never_how_many_have_room(
    *,
    racks: bool,
    layout: Layout,
    replicas: int,
    zones: str,
    free: list[int],
    standing: dict[str, int],
) -> None:
    pool = an_nvl72_pool() if racks else a_pool(nodes=18)
    nodes = tuple(
        replace(node, free=min(gpus, node.gpus), labels={} if zone == "-" else {"zone": zone})
        for node, zone, gpus in zip(pool.nodes, zones, free, strict=True)
    )
    pool, wanted = replace(pool, nodes=nodes), replace(layout, replicas=replicas)

    close = Shelf(pool).place(wanted)
    apart = Shelf(pool, over=Over(label="zone", standing=standing)).place(wanted)

    assert (len(apart.groups), apart.missing_nodes) == (len(close.groups), close.missing_nodes)
