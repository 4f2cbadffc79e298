"""The state of the Jobs that read configs from the hub, read by name as no cache shows Jobs."""

from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

from shardwright.cluster.client import ApiError, Client
from shardwright.cluster.resources import JOBS, PODS
from shardwright.controller.queue import Key
from shardwright.errors import Problem
from shardwright.modelspec.catalogue import find_model
from shardwright.modelspec.config_json import config_map_text
from shardwright.reconcile.fetched import config_taken, is_believed, job_unread
from shardwright.reconcile.observed import controller_uid
from shardwright.reconcile.record_object import SigningKeys
from shardwright.reconcile.snapshot import Fetching
from shardwright.rendering.bundle import KubernetesObject
from shardwright.rendering.deployment import Owner
from shardwright.rendering.fetch_job import Fetcher, job_name
from shardwright.resolving.model import config_source, unread
from shardwright.resolving.subject import Administration, Subject

OWN_CONTAINER: Final = "operator"
"""Name of the operator's container in its pod, as the chart has it."""

JOB_NAME: Final = "batch.kubernetes.io/job-name"
"""Label of the pods of a Job. Source: Kubernetes 1.36 ``staging/src/k8s.io/api/batch/v1/types.go``
(JobNameLabel).
"""


async def own_fetcher(client: Client, namespace: str, pod: str) -> Fetcher | None:
    """Return the fetcher with the image of the operator's own pod, None without a readable one.

    Raises:
        ApiError: it could not be read.
    """
    try:
        found = await client.get(PODS, namespace, pod)
    except ApiError as error:
        if error.code != HTTPStatus.FORBIDDEN:
            raise
        # Without the right no config is fetched; a guessed image could be one that the cluster
        # cannot pull.
        return None
    containers = ((found or {}).get("spec") or {}).get("containers") or ()
    ours = next((container for container in containers if container["name"] == OWN_CONTAINER), None)
    return Fetcher(image=ours["image"], pull_policy=ours["imagePullPolicy"]) if ours else None


def config_place(live: KubernetesObject) -> tuple[Key | None, str]:
    """Return the ConfigMap for the config, and its file; None if the spec has the config."""
    metadata = live["metadata"]
    source = config_source(metadata["name"], (live.get("spec") or {}).get("model") or {})
    return ((metadata["namespace"], source[0]), source[1]) if source else (None, "")


def believed_text(
    content: KubernetesObject,
    file: str,
    live: KubernetesObject,
    keys: SigningKeys,
    administration: Administration,
) -> str | None:
    """Return the config in a resource's ConfigMap; None if there is none, or somebody forged it.

    Without keys nothing tells who wrote it, so a catalogue that has the model takes precedence.
    """
    model = live["spec"]["model"]
    if not model.get("configMapRef"):
        known = (
            # With keys a signature proves that the operator had to read it for this model, so a
            # release that learns the id changes nothing that runs (ADR 30).
            not keys and find_model(str(model["id"]), administration.catalogue) is not None
        )
        if known or not is_believed(content, live["metadata"]["uid"], keys):
            return None
    return config_map_text(content, file)


async def read_fetching(
    client: Client, owner: Owner, subject: Subject | tuple[Problem, ...], taken: Key | None
) -> Fetching | None:
    """Return the state of the Job that reads a config, None if none need be or can be read.

    Also None if the operator may not read Jobs and their pods: then configs are given by hand.
    ``taken`` is the ConfigMap that was there before the subject was made, and so holds no config.
    """
    lacking = unread(subject)
    if lacking is None:
        return None
    if taken:
        return Fetching(fetch=lacking.fetch, problem=config_taken(taken[1]))
    name = job_name(owner, lacking.fetch)
    try:
        job = await client.get(JOBS, owner.namespace, name)
        if job is None or not (job.get("status") or {}).get("conditions"):
            return Fetching(fetch=lacking.fetch, job=job)
        # Only of a Job that has ended: until then its pod may still say something else.
        left = await _left(client, owner.namespace, name, job["metadata"]["uid"])
    except ApiError as error:  # what runs is repaired all the same
        return (
            None
            if error.code == HTTPStatus.FORBIDDEN
            else Fetching(fetch=lacking.fetch, problem=job_unread(name, str(error)))
        )
    return Fetching(fetch=lacking.fetch, job=job, left=left)


async def _left(client: Client, namespace: str, job: str, uid: str) -> str:
    # Anybody may label thousands of large pods so: only the messages of each are kept.
    pages = client.pages(
        PODS,
        namespace,
        project=lambda pod: {"left": left_by((pod,), uid)},
        labelSelector=f"{JOB_NAME}={job}",
    )
    left = [item["left"] async for page in pages for item in page if item["left"]]
    return left[0] if left else ""


def left_by(pods: Iterable[KubernetesObject], job_uid: str) -> str:
    """Return the messages left by the containers of a Job's pod, joined."""
    for pod in pods:
        # By uid: the label that finds the pod is anybody's to write (ADR 30).
        if controller_uid(pod) == job_uid:
            status = pod.get("status") or {}
            containers = (
                # In the order in which they ran: a message holds 4,096 bytes, so a large config
                # comes in two.
                *(status.get("initContainerStatuses") or ()),
                *(status.get("containerStatuses") or ()),
            )
            ended = (
                (container.get("state") or {}).get("terminated") or {} for container in containers
            )
            return "".join(str(state.get("message") or "") for state in ended)
    return ""
