"""Laws of scaling down: no group that serves ends while one that does not stays, and whoever stays
does not notice.
"""

from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from shardwright.rendering.names import group_number
from tests.support.builders_reconcile import crashed
from tests.support.builders_snapshot import ONE_NODE, OWNER, Operator
from tests.support.examples import examples
from tests.support.small_cluster import LOAD_SECONDS, UNREADY, SmallCluster

GROUPS = 4


@cache
def _serving() -> Operator:
    cluster = SmallCluster()
    cluster.add_nodes(GROUPS)
    operator = Operator(cluster, {**ONE_NODE, "replicas": GROUPS})
    operator.run(LOAD_SECONDS + 60)
    assert len(cluster.serving()) == GROUPS
    return operator


def harm(operator: Operator, number: int, *, failed: bool) -> None:
    """Let the engine of a group end, or only its readiness probe fail."""
    name = f"{OWNER.name}-{number}-0"
    status = operator.cluster.pods[name]["status"]
    status |= {"conditions": [UNREADY]}
    if failed:
        status |= {"containerStatuses": crashed(name)["status"]["containerStatuses"]}
    operator.cluster.version += 1


@examples(30)
@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.integers(0, GROUPS - 1), st.booleans(), max_size=GROUPS),
            st.integers(0, GROUPS),
        ),
        max_size=3,
    )
)
def test_scaling_down_ends_serving_groups_last_and_leaves_the_pods_of_the_others_alone(
    history: list[tuple[dict[int, bool], int]],
) -> None:
    operator = _serving().fork()
    for harmed, wanted in history:
        there = {
            number
            for name in operator.cluster.sets()
            if (number := group_number(OWNER.name, name)) is not None
        }
        for number in there.intersection(harmed):
            harm(operator, number, failed=harmed[number])
        served, uids = (
            set(operator.cluster.serving()),
            {name: item["metadata"]["uid"] for name, item in operator.cluster.sets().items()},
        )

        operator.edit(replicas=wanted)
        operator.run(0)

        left = operator.cluster.sets()
        assert len(left) == wanted
        ended = served - left.keys()
        assert not ended or left.keys() <= served
        if wanted <= len(there):
            assert all(uids[name] == item["metadata"]["uid"] for name, item in left.items())
        else:
            assert uids.keys() <= left.keys()
            assert left.keys() - uids.keys() == set(
                sorted({f"{OWNER.name}-{n}" for n in range(wanted)} - uids.keys())[
                    : wanted - len(there)
                ]
            )
        operator.run(3 * LOAD_SECONDS)
        assert operator.cluster.serving().keys() == operator.cluster.sets().keys()
