"""The halves of a pair: what each is told, who finds whom, and who may reach them."""

import json
from dataclasses import replace
from typing import Any

import pytest

from shardwright.costs.workload import Phase
from shardwright.rendering.bundle import of_kind
from shardwright.rendering.deployment import (
    ClusterTerms,
    Deployment,
    NetworkRules,
    Owner,
    PairMember,
    RouterOptions,
    SecretKey,
)
from shardwright.rendering.halves import REVISION, labels_of
from shardwright.rendering.labels import leader_selector
from shardwright.rendering.names import follows_from
from shardwright.rendering.place import pod_template
from shardwright.rendering.pod import scripts_of
from shardwright.rendering.render import render
from shardwright.rendering.router_pods import arguments, router_selector
from tests.support.builders_deployment import a_deployment, a_plan, a_small_plan

ROUTER = RouterOptions(account="shardwright-router", image="registry.internal/router:1")
KEY = SecretKey(name="clients", key="key")
CLIENTS = {"podSelector": {"matchLabels": {"app": "web"}}}
MONITORING = {"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}
RULES = NetworkRules(clients=(CLIENTS,), metrics=(MONITORING,), egress=())


def half(phase: Phase, **changes: Any) -> Deployment:
    owner = Owner(name=f"llama-{phase.lower()}", namespace="models", uid=phase)
    return a_deployment(owner=owner, half=PairMember(phase=phase, pair="llama"), **changes)


def prefill(**changes: Any) -> Deployment:
    return half(Phase.PREFILL, **changes)


def decode(**changes: Any) -> Deployment:
    return half(Phase.DECODE, **changes)


def engine_of(deployment: Deployment) -> dict[str, Any]:
    [container] = pod_template(a_small_plan(), deployment, 0)["spec"]["containers"]
    return dict(container)


def policies(deployment: Deployment) -> dict[str, Any]:
    objects = render(a_small_plan(), deployment).objects
    return {item["metadata"]["name"]: item["spec"] for item in of_kind(objects, "NetworkPolicy")}


@pytest.mark.parametrize(
    ("phase", "role"), [(Phase.PREFILL, "kv_producer"), (Phase.DECODE, "kv_consumer")]
)
def test_a_half_is_told_which_it_is_and_to_compute_what_it_cannot_fetch(
    phase: Phase, role: str
) -> None:
    told = engine_of(half(phase))["args"]

    assert json.loads(told[told.index("--kv-transfer-config") + 1]) == {
        "kv_connector": "NixlConnector",
        "kv_role": role,
        "kv_load_failure_policy": "recompute",
    }


def test_a_half_is_asked_at_the_address_of_its_pod_and_has_a_network_of_its_own() -> None:
    for deployment in (prefill(), decode()):
        container = engine_of(deployment)
        variables = {item["name"]: item for item in container["env"]}
        pod = pod_template(a_small_plan(), deployment, 0)["spec"]

        address = variables["VLLM_NIXL_SIDE_CHANNEL_HOST"]["valueFrom"]["fieldRef"]["fieldPath"]
        assert address == "status.podIP"
        assert variables["VLLM_NIXL_SIDE_CHANNEL_PORT"]["value"] == "5600"
        assert {"name": "transfer", "containerPort": 5600, "protocol": "TCP"} in container["ports"]
        assert not pod.get("hostNetwork")


def test_groups_that_answer_whole_requests_are_told_nothing_of_it() -> None:
    container = engine_of(a_deployment())

    assert "--kv-transfer-config" not in container["args"]
    assert [port["name"] for port in container["ports"]] == ["http"]
    assert labels_of(a_deployment()) == {}


def test_the_halves_of_a_pair_find_each_other_by_their_labels() -> None:
    found = [labels_of(one) for one in (prefill(), decode())]
    revision = found[0][REVISION]

    assert found == [
        {
            "shardwright.io/pair": "llama",
            "shardwright.io/role": role,
            "shardwright.io/revision": revision,
        }
        for role in ("prefill", "decode")
    ]
    template = pod_template(a_small_plan(), prefill(), 0)
    assert found[0].items() <= template["metadata"]["labels"].items()


@pytest.mark.parametrize(
    "other",
    [
        {"engine_version": "0.32.0"},
        {"image": "registry.internal/vllm:own"},
        {"arguments": {"block-size": 64}},
        {"arguments": {"dtype": "float16"}},
        {"kv_cache_dtype": "fp8"},
        {"quantization": "fp8"},
        {"revision": "f" * 40},
        {"environment": (("VLLM_ATTENTION_BACKEND", "FLASHINFER"),)},
    ],
    ids=lambda other: next(iter(other)),
)
def test_what_would_not_understand_the_kv_is_of_another_revision(other: dict[str, Any]) -> None:
    assert labels_of(prefill())[REVISION] != labels_of(prefill(**other))[REVISION]


def test_what_each_half_may_have_its_own_way_leaves_the_revision() -> None:
    own = {"drain_seconds": 600, "silence_seconds": 90, "gives_tokens": True, "cpu": "4"}

    assert labels_of(decode())[REVISION] == labels_of(prefill(**own))[REVISION]


def test_a_pod_that_computes_prompts_waits_for_those_who_fetch_them() -> None:
    plan = a_small_plan()
    scripts = {one.phase: scripts_of(plan, one)["drain.sh"] for one in (prefill(), decode())}
    graces = {
        one.phase: pod_template(plan, one, 0)["spec"]["terminationGracePeriodSeconds"]
        for one in (prefill(), decode())
    }

    assert scripts[Phase.PREFILL].rstrip().splitlines()[-1].startswith("sleep 30 ")
    assert scripts[Phase.DECODE] == scripts_of(plan, a_deployment())["drain.sh"]
    assert graces[Phase.PREFILL] == graces[Phase.DECODE] + 30


def test_followers_of_a_pod_that_computes_prompts_wait_for_as_long() -> None:
    bounds = [
        next(
            line
            for line in scripts_of(a_plan(), one)["drain.sh"].splitlines()
            if "leader" in line and "SECONDS" in line
        )
        for one in (prefill(), decode())
    ]
    longer, usual = (int("".join(filter(str.isdigit, line.partition("))")[0]))) for line in bounds)

    assert longer == usual + 30


def test_the_service_of_the_half_that_answers_has_the_name_of_the_pair() -> None:
    def services(deployment: Deployment) -> dict[str, Any]:
        objects = render(a_small_plan(), deployment).objects
        return {
            item["metadata"]["name"]: item["spec"]["selector"]
            for item in of_kind(objects, "Service")
        }

    assert services(decode(router=ROUTER)) == {"llama": router_selector("llama-decode")}
    waiting = replace(ROUTER, leads=False)
    assert services(decode(router=waiting)) == {"llama": leader_selector("llama-decode")}
    assert services(prefill()) == {"llama-prefill": leader_selector("llama-prefill")}


def router_arguments(deployment: Deployment) -> list[str]:
    return list(arguments(a_small_plan(), deployment))


def test_the_router_of_a_pair_knows_the_leaders_of_both_halves_of_one_revision() -> None:
    revision = labels_of(decode())[REVISION]
    told = router_arguments(decode(router=ROUTER))
    start = told.index("--vllm-pd-disaggregation")

    assert told[start : start + 15] == [
        "--vllm-pd-disaggregation",
        "--prefill-selector",
        "shardwright.io/pair=llama",
        "shardwright.io/role=prefill",
        f"shardwright.io/revision={revision}",
        "apps.kubernetes.io/pod-index=0",
        "--decode-selector",
        "shardwright.io/pair=llama",
        "shardwright.io/role=decode",
        f"shardwright.io/revision={revision}",
        "apps.kubernetes.io/pod-index=0",
        *("--prefill-policy", "cache_aware"),
        *("--decode-policy", "power_of_two"),
    ]
    assert not {"--selector", "--policy"} & {*told}
    assert told[told.index("--balance-abs-threshold") + 1] == "2"


def test_with_a_key_the_router_of_a_pair_has_it_and_follows_no_tokens() -> None:
    keyed = decode(router=ROUTER, api_key=KEY)
    [item] = of_kind(render(a_small_plan(), keyed).objects, "Deployment")
    [container] = item["spec"]["template"]["spec"]["containers"]
    told = router_arguments(keyed)

    assert told[told.index("--prefill-policy") + 1] == "consistent_hash"
    secret = {"secretKeyRef": {"name": "clients", "key": "key"}}
    assert container["env"] == [
        {"name": name, "valueFrom": secret} for name in ("VLLM_API_KEY", "OPENAI_API_KEY")
    ]


def test_the_router_of_a_pair_is_ready_with_both_halves() -> None:
    [item] = of_kind(render(a_small_plan(), decode(router=ROUTER)).objects, "Deployment")
    template = item["spec"]["template"]
    asked = template["spec"]["containers"][0]["readinessProbe"]["exec"]["command"]

    assert asked == ["python", "/etc/shardwright/router.py", "paired", "8000"]
    assert template["metadata"]["labels"]["shardwright.io/pair"] == "llama"
    assert "shardwright.io/role" not in template["metadata"]["labels"]


def test_members_of_a_pair_reach_each_other_and_clients_only_who_answers() -> None:
    pair = {"podSelector": {"matchLabels": {"shardwright.io/pair": "llama"}}}
    terms = ClusterTerms(network_rules=replace(RULES, egress=()))
    found = policies(prefill(cluster=terms)) | policies(decode(cluster=terms, router=ROUTER))
    http = [{"protocol": "TCP", "port": 8000}]
    router = {"podSelector": {"matchLabels": router_selector("llama-decode")}}

    assert found["llama-prefill-network"]["ingress"][0]["from"][1] == pair
    assert found["llama-prefill-network"]["ingress"][1] == {"ports": http, "from": [MONITORING]}
    assert found["llama-decode-network"]["ingress"][0]["from"][1] == pair
    assert found["llama-decode-network"]["ingress"][1] == {
        "ports": http,
        "from": [CLIENTS, MONITORING, router],
    }
    for policy in found.values():
        assert pair in policy["egress"][1]["to"]


def test_without_metrics_nobody_outside_of_a_pair_reaches_who_computes_prompts() -> None:
    alone = prefill(cluster=ClusterTerms(network_rules=NetworkRules(clients=(CLIENTS,))))

    [only] = policies(alone)["llama-prefill-network"]["ingress"]
    assert "ports" not in only


@pytest.mark.parametrize("one", [prefill(), decode(router=ROUTER)], ids=["prefill", "decode"])
def test_an_object_of_a_half_that_nobody_owns_is_known_by_its_name(one: Deployment) -> None:
    found = render(a_small_plan(), replace(one, cluster=ClusterTerms(network_rules=RULES))).objects

    assert [
        item for item in found if not follows_from(one.owner.name, item["metadata"]["name"])
    ] == []
