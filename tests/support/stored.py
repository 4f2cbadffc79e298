"""What any sample, golden or way to run a model renders, and what an API server makes of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from shardwright.cluster.writer import with_new_key
from shardwright.layouts.layout import Layout
from shardwright.planning.report import Plan
from shardwright.reconcile.drift import drifted_fields
from shardwright.rendering.deployment import (
    CacheClaim,
    ClaimPath,
    Deployment,
    ImagePath,
    OwnMarks,
    OwnVolume,
    RouterOptions,
    Scheduling,
    SecretKey,
    VolumeKind,
)
from shardwright.rendering.render import render
from tests.engine.launches import Launch, launches
from tests.harness.api import Api, ApiError, Manifest
from tests.support.builders_deployment import (
    a_deployment,
    a_plan,
    a_plan_of,
    a_small_plan,
    a_trtllm_deployment,
    an_sglang_deployment,
)

PATHS = {
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "Secret": "/api/v1/namespaces/{}/secrets",
    "Service": "/api/v1/namespaces/{}/services",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "PodGroup": "/apis/{api}/namespaces/{}/podgroups",
    "ComputeDomain": "/apis/{api}/namespaces/{}/computedomains",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "Pod": "/api/v1/namespaces/{}/pods",
}


def _launch(name: str, deployment: Deployment, plan: Plan | None = None) -> Launch:
    return Launch(id=name, plan=plan or a_plan(), deployment=deployment, config={})


MORE = (
    _launch(
        "downloads kept on a claim",
        a_deployment(cache=CacheClaim(claim="hub"), silence_seconds=60, idle_seconds=30),
    ),
    _launch(
        "downloads kept on claims of the pods",
        a_deployment(cache=CacheClaim(storage="1Ti", storage_class="fast")),
    ),
    _launch("weights on a claim", a_deployment(claim=ClaimPath(claim="weights", path="/llama"))),
    _launch(
        "Kueue",
        a_deployment(
            scheduling=Scheduling(
                integration="Kueue", api_version="kueue.x-k8s.io/v1beta2", queue="serving"
            )
        ),
    ),
    _launch("pods joined by Ray", a_deployment(over_ray=True)),
    _launch(
        "labels and volumes of a company",
        a_deployment(
            marks=OwnMarks(
                labels=(("team", "search"),),
                annotations=(("example.com/owner", "a"),),
                pull_policy="Always",
            ),
            volumes=(
                OwnVolume(
                    name="ca",
                    path="/etc/ssl/certs/own",
                    kind=VolumeKind.CONFIG_MAP,
                    source="company-ca",
                ),
                OwnVolume(name="data", path="/data/own", kind=VolumeKind.CLAIM, source="data"),
                OwnVolume(
                    name="scratch",
                    path="/srv/own",
                    kind=VolumeKind.SCRATCH,
                    source="1024Mi",
                    read_only=False,
                ),
            ),
        ),
    ),
    _launch("TensorRT-LLM in one pod", a_trtllm_deployment(), a_small_plan()),
    _launch("TensorRT-LLM over two pods", a_trtllm_deployment()),
    _launch(
        "TensorRT-LLM with experts",
        a_trtllm_deployment(),
        a_plan_of(Layout(attention_data=8, expert=8)),
    ),
    _launch("SGLang in one pod", an_sglang_deployment(), a_small_plan()),
    _launch("SGLang over two pods", an_sglang_deployment()),
)
"""Ways to run a model that nothing of :func:`tests.engine.launches.launches` has."""

ROUTER_IMAGE = "registry.internal/vllm-router:0.1.17"
ROUTED = _launch(
    "behind a router",
    a_deployment(
        router=RouterOptions(image=ROUTER_IMAGE, account="shardwright-router"),
        gives_tokens=True,
        api_key=SecretKey(name="clients", key="key"),
    ),
)
"""Written where the administrator names the image."""

NATIVE = _launch(
    "Native",
    a_deployment(
        scheduling=Scheduling(integration="Native", api_version="scheduling.k8s.io/v1beta1")
    ),
)
"""Stored where a feature gate is on."""

IMAGE_VOLUME = _launch(
    "image volume",
    a_deployment(
        weights_image=ImagePath(
            reference="registry.internal/llama:405b", path="llama", pull_policy="IfNotPresent"
        )
    ),
)
"""Stored where a feature gate is on, as it is by default from Kubernetes 1.35."""


@cache
def runnable() -> tuple[Launch, ...]:
    """Return what can be deployed of all samples and goldens, and the other ways to run a model."""
    return tuple(launch for launch in (*launches(), *MORE) if launch.plan.deployable)


def objects_of(launch: Launch, namespace: str) -> Iterator[Manifest]:
    """Yield what a launch renders, as the operator would send it for a resource of this
    namespace.
    """
    owner = replace(
        launch.deployment.owner, namespace=namespace, uid="6f9d1f6e-0c5b-4b3e-9b1f-2a7c1d0e4f55"
    )
    bundle = render(launch.plan, replace(launch.deployment, owner=owner))
    yield from map(dict, bundle.objects)
    yield from map(with_new_key, bundle.keys)


def stored(api: Api, item: Mapping[str, Any], namespace: str) -> Manifest:
    """Return what the API server would store."""
    path = PATHS[item["kind"]].format(namespace, api=item["apiVersion"])
    answer: Manifest = api.request(
        "POST", path, dict(item), query={"dryRun": "All", "fieldManager": "shardwright"}
    )
    return answer


def differences(
    api: Api, namespace: str, launches: tuple[Launch, ...]
) -> dict[str, tuple[str, ...]]:
    """Return, of every object, which fields come back otherwise than they were sent, or what the
    API server says against it.
    """
    found = {}
    for launch in launches:
        for item in objects_of(launch, namespace):
            try:
                kept = stored(api, item, namespace)
                different = drifted_fields(item, kept)
            except ApiError as error:
                different = (error.message,)
            if different:
                found[f"{launch.id}: {item['kind']} {item['metadata']['name']}"] = different
    return found


def pods(namespace: str, launches: tuple[Launch, ...]) -> Iterator[tuple[str, Manifest]]:
    """Yield the Pod of every template, as the StatefulSet controller would make it."""
    for launch in launches:
        for item in objects_of(launch, namespace):
            if item["kind"] == "StatefulSet":
                template = item["spec"]["template"]
                name = f"{item['metadata']['name']}-0"
                metadata = {**template["metadata"], "name": name, "namespace": namespace}
                volumes = [*template["spec"]["volumes"], *_claims(item, name)]
                spec = {**template["spec"], "volumes": volumes}
                yield (
                    launch.id,
                    {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec},
                )


def _claims(item: Manifest, pod: str) -> Iterator[Manifest]:
    for claim in item["spec"].get("volumeClaimTemplates", ()):
        name = claim["metadata"]["name"]
        yield {"name": name, "persistentVolumeClaim": {"claimName": f"{name}-{pod}"}}
