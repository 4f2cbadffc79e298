"""Laws of rendering: whatever the plan and whatever the user wrote."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shardwright.layouts.layout import Layout
from shardwright.planning.report import Plan
from shardwright.rendering.bundle import of_kind
from shardwright.rendering.deployment import ClaimPath, Deployment, SecretKey
from shardwright.rendering.names import STATEFULSET_MAX, base_name, group_name, peers_service
from shardwright.rendering.render import render
from tests.support.builders_deployment import a_deployment, a_plan_of, an_owner
from tests.support.command_lines import read_arguments
from tests.support.examples import examples
from tests.support.option_values import check_value
from tests.support.ranks import expanded, free_port, ranks_of
from tests.support.rendered import by_name, engine_of, environment_of, scalars, shape

DNS_LABEL = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")

subdomains = st.from_regex(
    r"[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?){0,4}", fullmatch=True
)
hostile = st.one_of(
    st.text(min_size=1, max_size=60),
    st.sampled_from(
        [
            '"; rm -rf / #',
            "'$(id)'",
            "a\nb: c",
            "{{ 7*7 }}",
            "{% for %}",
            "$(HF_TOKEN)",
            "$$(HF_TOKEN)",
            "`id`",
            "--trust-remote-code",
            "\\",
            "$",
        ]
    ),
)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """A plan of any layout that is deployed: tensor inside a node, pipeline over nodes or inside
    one.
    """
    tensor, pipeline = draw(st.sampled_from([1, 2, 4, 8])), draw(st.integers(1, 6))
    experts = tensor if draw(st.booleans()) else 1
    layout = Layout(
        tensor=tensor, pipeline=pipeline, expert=experts, replicas=draw(st.integers(1, 4))
    )
    nodes = pipeline if draw(st.booleans()) else 1
    return a_plan_of(layout, nodes=nodes, load_bytes_per_node=draw(st.integers(10**8, 10**13)))


@st.composite
def deployments(draw: st.DrawFn) -> Deployment:
    return a_deployment(
        owner=an_owner(name=draw(subdomains)),
        model=draw(hostile),
        revision=draw(st.none() | hostile),
        claim=draw(st.none() | st.builds(ClaimPath, claim=subdomains, path=hostile)),
        hub_token=draw(st.none() | st.just(SecretKey(name="hub", key="token"))),
        arguments={"response-role": draw(hostile), "seed": draw(st.integers(0, 99))},
        environment=(("NCCL_DEBUG", draw(hostile)),),
        over_ray=draw(st.booleans()),
    )


@given(plans(), deployments())
def test_the_same_plan_gives_the_same_bytes(plan: Plan, deployment: Deployment) -> None:
    first, second = (
        json.dumps([dict(item) for item in render(plan, deployment).objects]) for _ in range(2)
    )
    assert first == second


@given(plans(), deployments())
def test_names_are_valid_and_unique_and_leave_room_for_what_kubernetes_appends(
    plan: Plan, deployment: Deployment
) -> None:
    bundle = render(plan, deployment)
    for kind, name in by_name(bundle):
        assert DNS_LABEL.fullmatch(name)
        assert kind != "StatefulSet" or len(name) <= STATEFULSET_MAX


@given(plans(), deployments())
def test_labels_are_valid_and_every_selector_finds_the_pods_that_it_means(
    plan: Plan, deployment: Deployment
) -> None:
    bundle = render(plan, deployment)
    pods: dict[tuple[str, int], dict[str, str]] = {}
    for item in of_kind(bundle.objects, "StatefulSet"):
        labels = item["spec"]["template"]["metadata"]["labels"]
        assert all(LABEL_VALUE.fullmatch(value) for value in labels.values())
        pods |= {
            (item["metadata"]["name"], index): {
                **labels,
                "apps.kubernetes.io/pod-index": str(index),
            }
            for index in range(plan.nodes_per_replica)
        }

    def found(selector: dict[str, str]) -> set[Any]:
        return {pod for pod, labels in pods.items() if selector.items() <= labels.items()}

    base = base_name(deployment.owner.name)
    groups = range(len(plan.groups))
    named = by_name(bundle)
    assert found(named["Service", base]["spec"]["selector"]) == {
        (group_name(base, group), 0) for group in groups
    }
    budget = named.get(("PodDisruptionBudget", base))
    assert (budget is None) == (len(pods) == 1)
    if budget:
        assert found(budget["spec"]["selector"]["matchLabels"]) == set(pods)
    for group in groups:
        own = {pod for pod in pods if pod[0] == group_name(base, group)}
        peers = named.get(("Service", peers_service(group_name(base, group))))
        assert (peers is None) == (plan.nodes_per_replica == 1)
        if peers:
            assert found(peers["spec"]["selector"]) == own
        assert (
            found(named["StatefulSet", group_name(base, group)]["spec"]["selector"]["matchLabels"])
            == own
        )


@given(plans(), hostile, hostile, hostile)
def test_what_a_user_writes_changes_values_but_never_the_structure(
    plan: Plan, model: str, value: str, role: str
) -> None:
    tame = a_deployment(
        model="m", environment=(("NCCL_DEBUG", "v"),), arguments={"response-role": "r"}
    )
    wild = a_deployment(
        model=model, environment=(("NCCL_DEBUG", value),), arguments={"response-role": role}
    )
    expected, found = render(plan, tame), render(plan, wild)
    assert shape(found.objects) == shape(expected.objects)
    assert of_kind(found.objects, "ConfigMap") == of_kind(expected.objects, "ConfigMap")
    assert of_kind(found.objects, "Service") == of_kind(expected.objects, "Service")


@given(plans(), deployments())
def test_the_kubelet_expands_nothing_that_a_user_wrote(plan: Plan, deployment: Deployment) -> None:
    bundle = render(plan, deployment)
    words = [expanded(word) for word in engine_of(bundle)["args"]]
    assert words[words.index("--served-model-name") + 1] == deployment.model
    assert f"--response-role={(deployment.serving.arguments or {})['response-role']}" in words
    assert expanded(environment_of(bundle)["NCCL_DEBUG"]) == deployment.serving.environment[0][1]
    engine = engine_of(bundle)
    # Paths of mounts are written by nobody but us, and one is the pod's own.
    rest = {key: engine[key] for key in engine if key != "volumeMounts"}
    assert not any("<EXPANDED" in expanded(text) for text in scalars(rest))


@given(plans())
def test_groups_differ_in_names_and_nodes_only(plan: Plan) -> None:
    bundle = render(plan, a_deployment())
    shared = {
        json.dumps(
            [
                engine_of(bundle, group)[key]
                for key in ("command", "args", "resources", "startupProbe")
            ]
        )
        for group in range(len(plan.groups))
    }
    assert len(shared) == 1


@given(plans(), st.sampled_from(["0.32.0", "0.33.0"]), st.booleans())
def test_the_engine_takes_every_argument_list(
    plan: Plan,
    version: str,
    over_ray: bool,  # noqa: FBT001  # drawn
) -> None:
    container = engine_of(render(plan, a_deployment(engine_version=version, over_ray=over_ray)))
    _, options = read_arguments(container["args"])
    assert [name for name, value in options.items() if check_value(name, value, version)] == []


RANK_FLAGS = {
    "--node-rank": 1,
    "--master-addr": 1,
    "--data-parallel-start-rank": 1,
    "--data-parallel-address": 1,
    "--host": 1,
    "--port": 1,
    "--headless": 0,
}
"""What may differ between the ranks of a group, and how many values it takes."""

LISTENS = {"--host", "--port"}

passable = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20
) | st.sampled_from(["$(HF_TOKEN)", "'$(id)'", "--node-rank", "a b", "`id`"])
"""What a process can be given as an argument."""

words_of_users = st.builds(
    lambda model, role: {"model": f"m{model}", "arguments": {"response-role": role}},
    passable,
    passable,
)


@examples(5)
@given(st.integers(2, 4), st.sampled_from([1, 8]), words_of_users)
def test_the_ranks_of_a_group_differ_in_rank_flags_only(
    nodes: int, tensor: int, words: dict[str, Any]
) -> None:
    plan = a_plan_of(Layout(tensor=tensor, pipeline=nodes), nodes=nodes)
    shared, own = zip(
        *(_split(rank) for rank in _started(plan, a_deployment(**words))), strict=True
    )

    assert all(words == shared[0] for words in shared)
    assert [flags["--node-rank"] for flags in own] == [[str(number)] for number in range(nodes)]
    assert len({tuple(flags["--master-addr"]) for flags in own}) == 1
    assert [set(flags) for flags in own] == [{"--node-rank", "--master-addr"} | LISTENS] + [
        {"--node-rank", "--master-addr", "--headless"} for _ in range(nodes - 1)
    ]


@examples(5)
@given(st.integers(2, 4), st.integers(1, 3), st.sampled_from([1, 4]), words_of_users)
def test_the_pods_of_attention_replicas_differ_in_the_first_replica_of_each_only(
    nodes: int, local: int, tensor: int, words: dict[str, Any]
) -> None:
    replicas = nodes * local
    plan = a_plan_of(
        Layout(tensor=tensor, attention_data=replicas, expert=tensor * replicas), nodes=nodes
    )
    shared, own = zip(
        *(_split(rank) for rank in _started(plan, a_deployment(**words))), strict=True
    )

    assert all(words == shared[0] for words in shared)
    assert [flags.get("--data-parallel-start-rank") for flags in own] == [
        None,
        *([str(number * local)] for number in range(1, nodes)),
    ]
    assert len({tuple(flags["--data-parallel-address"]) for flags in own}) == 1
    assert [set(flags) for flags in own] == [{"--data-parallel-address"} | LISTENS] + [
        {"--data-parallel-start-rank", "--data-parallel-address", "--headless"}
        for _ in range(nodes - 1)
    ]


@examples(5)
@given(st.integers(2, 3), st.sampled_from([1, 8]), words_of_users)
def test_of_a_group_that_ray_joins_the_leader_alone_is_told_what_to_serve(
    nodes: int, tensor: int, words: dict[str, Any]
) -> None:
    plan = a_plan_of(Layout(tensor=tensor, pipeline=nodes), nodes=nodes)
    leader, *followers = _started(plan, a_deployment(over_ray=True, **words))

    assert leader.argv[: leader.shared] == ["serve", *leader.arguments]
    assert set(_split(leader)[1]) == LISTENS
    assert all(follower.argv == followers[0].argv for follower in followers)
    assert followers[0].argv[0] == "start"
    assert not {*words["arguments"].values(), words["model"], *leader.arguments} & set(
        followers[0].argv[1:]
    )


@dataclass(frozen=True, kw_only=True)
class _StartedRank:
    """What the process of a rank was started with, and what its container was given."""

    argv: list[str]
    arguments: list[str]

    @property
    def shared(self) -> int:
        """Return how many words the program and what all ranks share are."""
        return 1 + len(self.arguments)


def _started(plan: Plan, deployment: Deployment) -> list[_StartedRank]:
    """Run the launch scripts of a group and return what they started."""
    with (
        TemporaryDirectory() as folder,
        ranks_of(plan, deployment, Path(folder), ray={"port": free_port()}) as ranks,
    ):
        (Path(folder) / "hosts").write_text(
            f"{ranks[0].environment['SHARDWRIGHT_LEADER']} 127.0.0.1\n"
        )
        for rank in ranks:
            rank.start()
        return [
            _StartedRank(argv=rank.engine()["argv"], arguments=rank.arguments) for rank in ranks
        ]


def _split(rank: _StartedRank) -> tuple[list[str], dict[str, list[str]]]:
    """Return what all ranks were given and what this one alone was, as flag to values."""
    flags, words = {}, rank.argv[rank.shared :]
    while words:
        flag = words.pop(0)
        flags[flag] = [words.pop(0) for _ in range(RANK_FLAGS[flag])]
    return rank.argv[: rank.shared], flags


@given(st.lists(subdomains, min_size=2, max_size=6, unique=True))
def test_no_two_resources_share_an_object_name(names: list[str]) -> None:
    bases = [base_name(name) for name in names]
    stateful_sets = [
        group_name(base, *which) for base in bases for which in ((0, 0), (1, 0), (0, 2), (1, 12))
    ]
    services = [*bases, *(peers_service(name) for name in stateful_sets)]
    assert len(set(services)) == len(services)
    assert len(set(stateful_sets)) == len(stateful_sets)
