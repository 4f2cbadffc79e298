"""A pod that runs vLLM: its image, variables, resources, networks, volumes and place, in a draft.

No Secret's content and no container other than the engine is carried over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from shardwright.cli.imports.command_line import Launch, carry_options, launch_of, whole_number
from shardwright.cli.imports.draft import Draft
from shardwright.cli.imports.source import Spot, leave_together
from shardwright.cli.imports.storage import (
    SHARED_MEMORY,
    carry_model,
    literal_variables,
    weights_at,
)
from shardwright.engines.versions import engine_version
from shardwright.engines.vllm.environment import VARIABLES
from shardwright.engines.vllm.releases import RELEASES
from shardwright.errors import InputError, Problem
from shardwright.rendering.gang_scheduling import KUEUE_QUEUE
from shardwright.rendering.network import NETWORKS

HUB_TOKENS: Final = frozenset({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})
TOLERATION: Final = ("key", "operator", "value", "effect", "tolerationSeconds")

_PROBES: Final = "the operator has its own probes; see spec.readiness"
_STOPS: Final = "see spec.rollout.drainSeconds"
_PLACED: Final = "the plan names the nodes; write labels into spec.placement.nodeSelector"
_RESTRICTED: Final = "the pods meet the restricted Pod Security level"
_DEVICES: Final = "which devices a pod has follows from the plan"
_ROLLS: Final = "groups restart as a whole; see spec.rollout"

POD_REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "affinity": _PLACED,
        "nodeName": _PLACED,
        "optional": "the Secret must be there",
        "annotations": "spec.pod.annotations takes it, with a domain if the administrator admits "
        "that (policy.admittedPodKeys)",
        "capabilities": "the pods have none; see spec.pod.network.lockMemory",
        "claims": _DEVICES,
        "containers": "a group has no containers but the engine",
        "dnsConfig": "the pods have the cluster's DNS",
        "dnsPolicy": "the pods have the cluster's DNS",
        "env": "users may set only variables that change neither the plan nor who may do what in "
        "the pod",
        "envFrom": "name the variables in spec.engine.env",
        "hostIPC": SHARED_MEMORY,
        "hostNetwork": "the pods have a network of their own; see spec.pod.network",
        "initContainers": "the pods have none but the operator's own",
        "labels": "Services and policies select by it: add it to spec.pod.labels if they are to "
        "select the new pods",
        "lifecycle": _STOPS,
        "livenessProbe": _PROBES,
        "ports": "clients reach the model at status.endpoint",
        "readinessProbe": _PROBES,
        "resourceClaims": _DEVICES,
        "resources": "pods request GPUs, CPU, memory, local disk and the network's devices",
        "schedulerName": "see spec.placement.scheduler",
        "securityContext": _RESTRICTED,
        "selector": "the operator selects its pods by labels of its own",
        "serviceAccountName": "see spec.pod.serviceAccountName, which an administrator admits; the "
        "pods get no token of it",
        "serviceAccount": "it is the former name of serviceAccountName",
        "startupProbe": _PROBES,
        "strategy": _ROLLS,
        "minReadySeconds": "see spec.rollout.minReadySeconds",
        "progressDeadlineSeconds": "see spec.rollout.progressDeadlineSeconds",
        "terminationGracePeriodSeconds": _STOPS,
        "tolerations": "a toleration has no such field",
        "topologySpreadConstraints": "the plan names the nodes; see spec.pod.topologySpread",
        "volumeMounts": "the pods mount the weights, and what spec.pod.volumes admits",
        "volumes": "the pods mount the weights, and what spec.pod.volumes admits",
        "workingDir": "the operator starts the engine",
    }
)
"""Fields of a pod that have no place in a ShardedModel, and why."""

_GPU: Final = re.compile(r"(nvidia|amd)\.com/(gpu|mig-)")
MIG: Final = "nvidia.com/mig-"
_NETWORK_DEVICE: Final = re.compile(r"rdma|roce|/efa$|hostdev|mlnx|/v?nic$|/hca", re.ASCII)
"""Names of devices by which pods reach a network. Source: the names that hardware/topology.py
knows, and those of KServe's, AIBrix' and llm-d's samples.
"""

_ENGINE_IMAGE: Final = re.compile(r"(^|/)(vllm-openai[^/:@]*|vllm)([:@][^/]*)?$")
"""Images whose entry point is ``vllm serve``. Source: vLLM's own and AMD's."""

_INTERFACES: Final = re.compile(r"_IFNAME$")
_OF_MULTUS: Final = re.compile(r"net[0-9]*")
_SHOWN: Final = 120  # characters of a foreign script


def engine_of(pod: Spot, source: str) -> tuple[Spot, Launch]:
    """Return the container of a pod that starts vLLM, and how; of several the one with GPUs.

    Raises:
        InputError: none does, or more than one.
    """
    started = [
        (item, launch) for item in pod.at("containers").each() if (launch := launch_in(item))
    ]
    if len(started) > 1:
        started = [found for found in started if _has_gpus(found[0])] or started
    if not started:
        raise InputError([not_vllm(source)])
    if len(started) > 1:
        names = [item.path for item, _ in started]
        raise InputError([several(source, "containers that start vLLM", names)])
    return started[0]


def _has_gpus(container: Spot) -> bool:
    resources = container.at("resources")
    named = (name.last for kind in ("limits", "requests") for name in resources.at(kind).each())
    return any(_GPU.match(name) for name in named) or resources.at("claims").is_there


def container_named(pod: Spot, name: str) -> Spot:
    """Return the container of a name; an empty place if there is none."""
    containers = pod.at("containers").each()
    found = (item for item in containers if item.at("name").value == name)
    return next(found, pod.at("containers", name))


def launch_in(container: Spot) -> Launch | None:
    """Return how a container starts vLLM, None if it starts something else."""
    command, arguments = container.at("command").words, container.at("args").words
    own = not command and arguments and _ENGINE_IMAGE.search(container.at("image").string)
    try:
        return launch_of(
            ["vllm", "serve", *arguments] if own else [*command, *arguments],
            literal_variables(container),
        )
    except ValueError:  # a script with unclosed quotes
        return None


def carry_pod(draft: Draft, pod: Spot, container: Spot, metadata: Sequence[Spot] = ()) -> None:
    """Add a pod's fields and those of its engine's container to a draft, but for the command.

    ``metadata`` are those whose annotations and labels the pod gets.
    """
    container.at("name").take()
    for part in metadata:
        _carry_metadata(draft, part)
    _carry_place(draft, pod)
    carry_image(draft, container.at("image").string, container.at("image"))
    draft.carry("pod.imagePullPolicy", container.at("imagePullPolicy"))
    carry_environment(draft, container.at("env"), _names_in(container))
    carry_resources(draft, container.at("resources"))


def carry_launch(draft: Draft, pod: Spot, container: Spot, launch: Launch) -> None:
    """Add the options and the model of the command of an engine's container to a draft."""
    carry_command(draft, container, launch)
    if launch.model:
        weights = weights_at(launch.model, pod, container)
        carry_model(draft, launch.model, container.path, weights)


def carry_command(draft: Draft, container: Spot, launch: Launch) -> None:
    """Add the options of the command of an engine's container to a draft."""
    for key in ("command", "args"):
        container.at(key).take()
    carry_options(draft, launch.options, container.path)
    if launch.rest:
        shown = "; ".join(launch.rest)
        draft.leave(
            container.at("args" if container.at("args").is_there else "command").path,
            f"only vLLM's own command is carried over, not: {shown[:_SHOWN]}",
        )


def carry_environment(draft: Draft, variables: Spot, used: frozenset[str] = frozenset()) -> None:
    """Add variables to a draft; ``used`` are those whose values stand in the command already."""
    kept = []
    for item in variables.each():
        name, value = item.at("name").string, item.at("value").string
        reference = item.at("valueFrom", "secretKeyRef")
        if not item.at("name").is_open:
            continue
        if name in HUB_TOKENS and reference.is_there:
            _carry_token(draft, item, reference)
        elif name in HUB_TOKENS:
            item.leave("a token belongs into a Secret: spec.model.weights.secretRef")
        elif name in VARIABLES and isinstance(item.at("value").value, str):
            if _is_reached(draft, name, value):
                kept.append({"name": item.at("name").take(), "value": item.at("value").take()})
            else:
                item.leave(f"{value}: no network of the pods brings this interface")
        elif name in used and item.at("value").is_there:
            item.at("name").take()
            item.at("value").take()
        else:
            item.leave(POD_REASONS["env"])
    if kept:
        draft.add("engine.env", kept, variables)


def carry_access(draft: Draft, secret: Spot, key: str) -> None:
    """Add the Secret of that name to a draft, whose key has a token of the hub."""
    if text := secret.text():
        draft.put("model.weights.secretRef", {"name": text, "key": key}, secret)


def _carry_token(draft: Draft, item: Spot, reference: Spot) -> None:
    item.at("name").take()
    named = {key: text for key in ("name", "key") if (text := reference.at(key).text())}
    draft.put("model.weights.secretRef", named, reference)


def _is_reached(draft: Draft, name: str, value: str) -> bool:
    """Return whether the interfaces that a variable names are those of the pods."""
    if not _INTERFACES.search(name) or value.startswith("^"):
        return True
    attached = bool(draft.get("pod.network.attachments"))
    names = [word.strip().lstrip("=") for word in value.split(",")]
    return all(
        word.startswith(("eth", "lo")) or (attached and _OF_MULTUS.fullmatch(word))
        for word in names
    )


def carry_resources(
    draft: Draft, resources: Spot, names: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Add CPU, memory, local disk, slices and the network's devices to a draft.

    ``names`` says by the source's own names of resources those of Kubernetes.
    """
    limits, requests = resources.at("limits"), resources.at("requests")
    for name, field, first, second in (
        ("cpu", "cpu", requests, limits),
        ("memory", "memory", limits, requests),
        ("ephemeral-storage", "ephemeralStorage", limits, requests),
    ):
        carry_quantity(draft, f"pod.resources.{field}", first.at(name), second.at(name))
    devices: dict[str, Any] = {}
    gpus: list[Spot] = []
    for part in (*limits.each(), *requests.each()):
        name = names.get(part.last, part.last)
        if name.startswith(MIG):
            carry_slices(draft, name.removeprefix(MIG), part)
        elif _GPU.match(name):
            gpus.append(part)
        elif "/" in name and _NETWORK_DEVICE.search(name):
            count = devices.setdefault(name, part.value)
            if count == part.value:
                part.take()
            else:
                part.leave(f"{part.value}: pods request {count}")
    leave_together(
        gpus, f"{gpus[0].value if gpus else 0}: how many GPUs a pod has follows from the plan"
    )
    if devices:
        listed = [{"name": name, "count": _count(count)} for name, count in devices.items()]
        draft.add("pod.network", {"rdma": "Explicit", "resources": listed}, resources)


def carry_slices(draft: Draft, profile: str, part: Spot) -> None:
    """Add a profile of MIG to a draft, with a plus sign as labels write it or without."""
    part.take()
    draft.put("placement.migProfile", profile.replace("+", "."), part)


def carry_quantity(draft: Draft, field: str, first: Spot, second: Spot) -> None:
    """Add the first of two quantities that is there to a draft."""
    chosen, other = (first, second) if first.is_there else (second, first)
    if not isinstance(chosen.value, str | int | float):
        return
    draft.put(field, str(chosen.take()), chosen)
    if other.value == chosen.value:
        other.take()
    elif other.is_there:
        other.leave(f"{other.value}: spec.{field} is {chosen.value}; one number says both")


def _count(value: Any) -> Any:
    number = whole_number(value)
    return value if number is None else number


def carry_queue(draft: Draft, labels: Spot) -> None:
    """Add the queue of Kueue that a label names to a draft."""
    label = labels.at(KUEUE_QUEUE)
    if queue := label.text():
        draft.put("placement.scheduler", "Kueue", label)
        draft.put("placement.queue", queue, label)


def _carry_metadata(draft: Draft, metadata: Spot) -> None:
    carry_networks(draft, metadata.at("annotations", NETWORKS))
    carry_queue(draft, metadata.at("labels"))


def carry_networks(draft: Draft, annotation: Spot) -> None:
    """Add the networks that an annotation of Multus names to a draft."""
    if names := _attachments(annotation.string):
        annotation.take()
        draft.add("pod.network", {"attachments": names}, annotation)
    else:
        annotation.leave("spec.pod.network.attachments takes names of networks, and no more of it")


def _attachments(text: str) -> list[str]:
    """Return the networks that Multus' annotation names; none if it says more than names.

    >>> _attachments("roce-p2, net/ib"), _attachments('[{"name": "a", "namespace": "n"}]')
    (['roce-p2', 'net/ib'], ['n/a'])
    >>> _attachments("roce@eth1"), _attachments('[{"name": "a", "mac": "02:00"}]')
    ([], [])
    """
    if not text.lstrip().startswith("["):
        names = [word.strip() for word in text.split(",")]
        return [] if any("@" in name or not name for name in names) else names
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return []
    plain = all(isinstance(item, dict) and item.keys() <= {"name", "namespace"} for item in told)
    return [_network(item) for item in told] if plain else []


def _network(item: Mapping[str, Any]) -> str:
    return "/".join(str(item[key]) for key in ("namespace", "name") if item.get(key))


def _names_in(container: Spot) -> frozenset[str]:
    text = " ".join(word for key in ("command", "args") for word in container.at(key).words)
    return frozenset(re.findall(r"\$[({]?(\w+)", text, re.ASCII))


def _carry_place(draft: Draft, pod: Spot) -> None:
    carry_selector(draft, pod.at("nodeSelector"))
    carry_tolerations(draft, pod.at("tolerations"))
    draft.carry("pod.priorityClassName", pod.at("priorityClassName"))
    draft.carry("pod.runtimeClassName", pod.at("runtimeClassName"))
    secrets = pod.at("imagePullSecrets")
    if names := [name for item in secrets.each() if (name := item.at("name").text())]:
        draft.put("pod.imagePullSecrets", [{"name": name} for name in names], secrets)


def carry_selector(draft: Draft, selector: Spot) -> None:
    """Add labels that nodes must carry to a draft."""
    labels = {part.last: text for part in selector.each() if (text := part.text())}
    if labels:
        draft.add("placement.nodeSelector", labels, selector)


def carry_tolerations(draft: Draft, tolerations: Spot) -> None:
    """Add tolerations to a draft."""
    said = (
        {key: item.at(key).take() for key in TOLERATION if item.at(key).is_there}
        for item in tolerations.each()
    )
    if kept := [item for item in said if item]:
        draft.add("placement.tolerations", kept, tolerations)


def carry_image(draft: Draft, image: str, *parts: Spot) -> None:
    """Add an image to a draft if its tag names a supported version of vLLM."""
    if not image or not any(part.is_open for part in parts):
        return
    version = engine_version(image, None, RELEASES)
    if isinstance(version, Problem):
        why = f"{image}: {version.sentence()}; the default image is used"
        leave_together(list(parts), why)
        return
    for part in parts:
        part.take()
    draft.put("engine.image", image, parts[0])


def not_vllm(source: str) -> Problem:
    """Return the problem of an object that starts no vLLM."""
    return Problem(
        code="ImportUnclear",
        what=source,
        limit="has no container that starts vLLM",
        remedy="only what runs vLLM can be imported",
    )


def several(source: str, parts: str, names: Sequence[str]) -> Problem:
    """Return the problem of an object with several parts that may be the model."""
    return Problem(
        code="ImportUnclear",
        what=f"{source} has several {parts} ({', '.join(names)})",
        limit="and a ShardedModel is one",
        remedy="leave the one to be imported in a copy of the file",
    )
