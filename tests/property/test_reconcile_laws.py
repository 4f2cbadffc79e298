"""Laws of the reconciler: it comes to rest, wherever it was killed; it never mixes revisions; it
touches nothing foreign.
"""

import copy
from collections import Counter

from hypothesis import example, given
from hypothesis import strategies as st

from shardwright.reconcile.decide import Decision, Desired, decide
from shardwright.reconcile.drift import drifted_fields
from shardwright.reconcile.group import LifeRules, generations
from shardwright.reconcile.writes import Apply, Create, Delete
from shardwright.rendering.names import generation_of, group_name
from tests.support.builders_reconcile import (
    NOON,
    OWNER_UID,
    World,
    by_name,
    desired,
    rendered,
    service,
    stateful_set,
)
from tests.support.examples import examples

LIMIT = 12

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("abc", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "env", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


def named_lists_only(value: object) -> bool:
    """Keyed lists hold objects with a name in Kubernetes; other inputs are none."""
    if isinstance(value, dict):
        return all(key != "env" and named_lists_only(item) for key, item in value.items())
    return all(map(named_lists_only, value)) if isinstance(value, list) else True


@given(json_values.filter(named_lists_only))
def test_what_is_live_as_rendered_has_not_drifted(value: object) -> None:
    assert drifted_fields({"field": value}, {"field": copy.deepcopy(value)}) == ()


@given(json_values.filter(named_lists_only), json_values)
def test_a_field_beside_the_rendered_ones_is_no_drift(value: object, other: object) -> None:
    assert drifted_fields({"field": value}, {"field": value, "another": other}) == ()


events = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "roll",
                "crash",
                "delete pod",
                "edit",
                "delete set",
                "scale",
                "delete service",
                "nothing",
            ]
        ),
        st.integers(0, 3),  # how many writes are carried out before the operator is killed
        st.booleans(),  # whether the cluster moves on before it is started again
    ),
    max_size=6,
)


@examples(100)
@given(st.integers(1, 3), st.integers(1, 2), events)
@example(
    1, 1, [("nothing", 3, True), ("roll", 3, False), ("nothing", 3, False)]
)  # its pods have not ended yet
def test_the_reconciler_comes_to_rest_wherever_it_was_killed_and_never_mixes_revisions(
    pods: int, groups: int, happened: list[tuple[str, int, bool]]
) -> None:
    world, revision = World(), 1

    def wanted() -> Desired:
        scripts = f"llama-scripts-{revision}"
        sets = [
            stateful_set(f"llama-{group}", pods=pods, revision=f"r{revision}", scripts=scripts)
            for group in range(groups)
        ]
        return desired(rendered("ConfigMap", scripts), service(), *sets)

    for event, writes, moves_on in happened:
        if event == "roll":
            revision += 1
        _happen(world, event)
        world.write(decide(wanted(), world.observed(), NOON).writes, first=writes)
        if moves_on:
            world.settle()
        assert _mounted(world) <= _config_maps(world)
    world.settle()
    for year in (
        2027,
        2028,
    ):  # a crash that is found only now may have to wait for the end of its back-off
        later = NOON.replace(year=year)
        world.run(wanted(), now=later, limit=LIMIT)

    decision = decide(wanted(), world.observed(), later)
    assert decision.writes == ()
    assert all(group.ready for group in decision.groups)
    assert len(world.pods) == pods * groups
    assert not world.mixed
    assert _mounted(world) == _config_maps(world)


def _mounted(world: World) -> set[str]:
    """Return the ConfigMaps that pods mount, or would mount if they were made again now."""
    return {
        volume["configMap"]["name"]
        for spec in (
            *(item["spec"] for item in world.pods.values()),
            *(
                item["spec"]["template"]["spec"]
                for (kind, _), item in world.objects.items()
                if kind == "StatefulSet"
            ),
        )
        for volume in spec["volumes"]
    }


def _config_maps(world: World) -> set[str]:
    return {name for kind, name in world.objects if kind == "ConfigMap"}


class Surging:
    """An operator that finds free GPUs for a group that is to stop, or finds none, as it is
    told.
    """

    def __init__(self, world: World, pods: int, groups: int) -> None:
        self.world, self.pods, self.least, self.revision = world, pods, [0] * groups, 1

    def decide(self, *, room: bool) -> Decision:
        decision = self._decide()
        if decision.stopping and room:
            group = decision.stopping[0]
            self.least[group] = generation_of(decision.groups[group].name)[1] + 1
            decision = self._decide()
        return decision

    def _decide(self) -> Decision:
        nodes = [(f"free-{group}",) for group in range(len(self.least))]
        found = generations(by_name(nodes), self.world.observed(), OWNER_UID, (), self.least)
        names = (group_name("llama", group, number) for group, number in enumerate(found))
        sets = [stateful_set(name, pods=self.pods, revision=f"r{self.revision}") for name in names]
        return decide(
            desired(service(), *sets, rules=LifeRules(max_surge=1)), self.world.observed(), NOON
        )


def _serving(world: World) -> int:
    """Return how many StatefulSets have all their pods, ready."""
    wanted = {
        name: item["spec"]["replicas"]
        for (kind, name), item in world.objects.items()
        if kind == "StatefulSet"
    }
    there = Counter(name.rpartition("-")[0] for name in world.pods)
    return sum(replicas > 0 and there[name] == replicas for name, replicas in wanted.items())


@given(
    st.integers(1, 2),
    st.integers(1, 3),
    st.lists(st.tuples(st.sampled_from(["roll", "go on"]), st.integers(0, 4), st.booleans())),
)
def test_with_free_gpus_a_roll_ends_no_service_and_comes_to_rest_wherever_it_was_killed(
    pods: int, groups: int, happened: list[tuple[str, int, bool]]
) -> None:
    world = World()
    operator = Surging(world, pods, groups)
    for _ in range(3):
        world.write(operator.decide(room=True).writes)
        world.settle()
    for event, writes, moves_on in happened:
        operator.revision += event == "roll"
        world.write(operator.decide(room=True).writes, first=writes)
        if moves_on:
            world.settle()
        assert _serving(world) >= groups
    for _ in range(LIMIT):
        world.write(operator.decide(room=True).writes)
        world.settle()

    assert operator.decide(room=True).writes == ()
    assert all(group.ready for group in operator.decide(room=True).groups)
    assert len(world.pods) == pods * groups
    assert not world.mixed


def _happen(world: World, event: str) -> None:
    sets = [item for (kind, _), item in world.objects.items() if kind == "StatefulSet"]
    name = next(iter(world.pods), None)
    if event == "crash" and name:
        world.crash(name)
    elif event == "delete pod" and name:
        del world.pods[name]
    elif event == "edit" and sets:
        sets[0]["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"] = "edited"
    elif event == "scale" and sets:
        sets[0]["spec"]["replicas"] = 1
    elif event == "delete set" and sets:
        del world.objects["StatefulSet", sets[0]["metadata"]["name"]]
    elif event == "delete service":
        world.objects.pop(("Service", "llama"), None)


@given(
    owner=st.sampled_from([None, "somebody"]),
    labelled=st.booleans(),
    kind=st.sampled_from(["Service", "StatefulSet", "ConfigMap"]),
)
def test_nothing_that_is_not_ours_is_ever_written(
    owner: str | None, *, labelled: bool, kind: str
) -> None:
    world = World()
    foreign = rendered(kind, "llama-0")
    owners = [{"kind": "Other", "name": "o", "uid": owner, "controller": True}] if owner else []
    foreign["metadata"] |= {"uid": "foreign", "ownerReferences": owners}
    if not labelled:
        foreign["metadata"]["labels"] = {}
    world.objects[kind, "llama-0"] = foreign
    wanted = desired(service(), stateful_set(), rendered("ConfigMap", "llama-0", data={}))

    for write in decide(wanted, world.observed(), NOON).writes:
        assert not isinstance(write, (Apply, Delete))
        assert isinstance(write, Create)
        assert (write.content["kind"], write.content["metadata"]["name"]) != (kind, "llama-0")
