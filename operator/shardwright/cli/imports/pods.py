"""A pod that runs vLLM: its image, variables, resources, networks, volumes and place, in a draft.

No Secret's content and no container other than the engine is carried over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from shardwright.api.pod_spec import MOUNT_PATTERN
from shardwright.cli.imports.command_line import Launch, carry_options, launch_of
from shardwright.cli.imports.draft import Draft
from shardwright.cli.imports.source import Part, leave_together
from shardwright.engines.versions import engine_version
from shardwright.engines.vllm.environment import VARIABLES
from shardwright.engines.vllm.releases import RELEASES
from shardwright.errors import InputError, Problem

HUB_TOKENS: Final = frozenset({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})
HUB_CACHES: Final = ("/root/.cache/huggingface", "/.cache/huggingface")
"""Where images keep downloads, unless HF_HOME says otherwise."""

TOLERATION: Final = ("key", "operator", "value", "effect", "tolerationSeconds")

MULTUS: Final = "k8s.v1.cni.cncf.io/networks"
KUEUE: Final = "kueue.x-k8s.io/queue-name"

_PROBES: Final = "the operator has its own probes; see spec.readiness"
_STOPS: Final = "see spec.rollout.drainSeconds"
_PLACED: Final = "the plan names the nodes; write labels into spec.placement.nodeSelector"
_RESTRICTED: Final = "the pods meet the restricted Pod Security level"
_DEVICES: Final = "which devices a pod has follows from the plan"
_ROLLS: Final = "groups restart as a whole; see spec.rollout"
_SHARED_MEMORY: Final = "shared memory follows from the plan"

POD_REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "affinity": _PLACED,
        "nodeName": _PLACED,
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
        "hostIPC": _SHARED_MEMORY,
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
_MIG: Final = "nvidia.com/mig-"
_NETWORK_DEVICE: Final = re.compile(r"rdma|roce|/efa$|hostdev|mlnx|/v?nic$|/hca", re.ASCII)
"""Names of devices by which pods reach a network. Source: the names that hardware/topology.py
knows, and those of KServe's, AIBrix' and llm-d's samples.
"""

_OTHER_ACCELERATOR: Final = re.compile(
    r"google\.com/tpu|tpu\.google\.com|gke-tpu-|aws\.amazon\.com/neuron|neuron\.aws|habana\.ai/"
    r"|gpu\.intel\.com|huawei\.com/ascend|cambricon\.com/|qualcomm\.com/qaic|tenstorrent\.com/"
    r"|furiosa\.ai/|rebellions\.ai/",
    re.IGNORECASE,
)
"""Resources, labels and device classes of accelerators that are no GPUs of NVIDIA or AMD. Source:
the vendors' device plugins and DRA drivers.
"""

_ENGINE_IMAGE: Final = re.compile(r"(^|/)(vllm-openai[^/:@]*|vllm)([:@][^/]*)?$")
"""Images whose entry point is ``vllm serve``. Source: vLLM's own and AMD's."""

_INTERFACES: Final = re.compile(r"_IFNAME$")
_OF_MULTUS: Final = re.compile(r"net[0-9]*")
_MOUNTABLE: Final = re.compile(MOUNT_PATTERN)
_CLAIM: Final = ("persistentVolumeClaim", "claimName")
_SHOWN: Final = 120  # characters of a foreign script


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Where a pod reads a model that it names by path: a folder on a claim."""

    claim: str
    folder: str


def engine_of(pod: Part, source: str) -> tuple[Part, Launch]:
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
        names = ", ".join(item.path for item, _ in started)
        raise InputError([_two_engines(source, names)])
    return started[0]


def _has_gpus(container: Part) -> bool:
    resources = container.at("resources")
    named = (name.last for kind in ("limits", "requests") for name in resources.at(kind).each())
    return any(_GPU.match(name) for name in named) or resources.at("claims").is_there


def container_named(pod: Part, name: str) -> Part:
    """Return the container of a name; an empty place if there is none."""
    containers = pod.at("containers").each()
    found = (item for item in containers if item.at("name").value == name)
    return next(found, pod.at("containers", name))


def launch_in(container: Part) -> Launch | None:
    """Return how a container starts vLLM, None if it starts something else."""
    command, arguments = (_words(container.at(key)) for key in ("command", "args"))
    image = str(container.at("image").value or "")
    own = not command and arguments and _ENGINE_IMAGE.search(image)
    try:
        return launch_of(
            ["vllm", "serve", *arguments] if own else [*command, *arguments], _literal(container)
        )
    except ValueError:  # a script with unclosed quotes
        return None


def carry_pod(
    draft: Draft, pod: Part, container: Part, metadata: Sequence[Part] = (), source: str = ""
) -> None:
    """Add a pod's fields and those of its engine's container to a draft, but for the command.

    ``metadata`` are those whose annotations and labels the pod gets.

    Raises:
        InputError: it runs on an accelerator that nothing here plans.
    """
    _refuse_other_accelerators(pod, container, metadata, source)
    container.at("name").take()
    for part in metadata:
        _carry_metadata(draft, part)
    _carry_place(draft, pod)
    image = container.at("image")
    carry_image(draft, image.value if isinstance(image.value, str) else "", image)
    draft.carry("pod.imagePullPolicy", container.at("imagePullPolicy"))
    carry_environment(draft, container.at("env"), _names_in(container))
    carry_resources(draft, container.at("resources"))


def carry_launch(draft: Draft, pod: Part, container: Part, launch: Launch) -> None:
    """Add the options and the model of the command of an engine's container to a draft."""
    carry_command(draft, container, launch)
    if launch.model:
        weights = _weights_at(launch.model, pod, container)
        carry_model(draft, launch.model, container.path, weights)


def carry_command(draft: Draft, container: Part, launch: Launch) -> None:
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


def carry_model(draft: Draft, model: str, where: str, weights: Weights | None) -> None:
    """Add a model to a draft: an id of the hub, or a folder on a claim."""
    if not model.startswith("/"):
        draft.put("model.id", model, where)
        return
    if weights:
        uri = f"pvc://{weights.claim}/{weights.folder}".rstrip("/")
        draft.put("model.weights.uri", uri, where)
    else:
        draft.leave(
            where,
            f"{model} is on no claim of the pod: say where the weights are in spec.model.weights",
        )
    served = draft.get("model.servedName")
    if isinstance(served, str) and served.count("/") == 1:
        draft.put("model.id", served)


def carry_environment(draft: Draft, variables: Part, used: frozenset[str] = frozenset()) -> None:
    """Add variables to a draft; ``used`` are those whose values stand in the command already."""
    kept = []
    for item in variables.each():
        name, value = item.at("name").value, item.at("value").value
        reference = item.at("valueFrom", "secretKeyRef")
        if not item.at("name").is_open:
            continue
        if name in HUB_TOKENS and reference.is_there:
            _carry_token(draft, item, reference)
        elif name in HUB_TOKENS:
            item.leave("a token belongs into a Secret: spec.model.weights.secretRef")
        elif name in VARIABLES and isinstance(value, str):
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
        draft.put("engine.env", [*(draft.get("engine.env") or ()), *kept], variables)


def _carry_token(draft: Draft, item: Part, reference: Part) -> None:
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
    draft: Draft, resources: Part, names: Mapping[str, str] = MappingProxyType({})
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
        _carry_quantity(draft, f"pod.resources.{field}", first.at(name), second.at(name))
    devices: dict[str, Any] = {}
    gpus: list[Part] = []
    for part in (*limits.each(), *requests.each()):
        name = names.get(part.last, part.last)
        if name.startswith(_MIG):
            draft.put("placement.migProfile", name.removeprefix(_MIG).replace("+", "."), part)
            part.take()
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
        network = {"rdma": "Explicit", "resources": listed}
        draft.put("pod.network", {**(draft.get("pod.network") or {}), **network}, resources)


def _carry_quantity(draft: Draft, field: str, first: Part, second: Part) -> None:
    chosen, other = (first, second) if first.is_there else (second, first)
    if not isinstance(chosen.value, str | int | float):
        return
    draft.put(field, str(chosen.take()), chosen)
    if other.value == chosen.value:
        other.take()
    elif other.is_there:
        other.leave(f"{other.value}: spec.{field} is {chosen.value}; one number says both")


def _count(value: Any) -> Any:
    return int(value) if str(value).isdecimal() else value


def carry_queue(draft: Draft, labels: Part) -> None:
    """Add the queue of Kueue that a label names to a draft."""
    if queue := labels.at(KUEUE).text():
        draft.put("placement.scheduler", "Kueue", labels)
        draft.put("placement.queue", queue, labels)


def _carry_metadata(draft: Draft, metadata: Part) -> None:
    carry_networks(draft, metadata.at("annotations", MULTUS))
    carry_queue(draft, metadata.at("labels"))


def carry_networks(draft: Draft, annotation: Part) -> None:
    """Add the networks that an annotation of Multus names to a draft."""
    names = _attachments(annotation.value) if isinstance(annotation.value, str) else []
    if names:
        annotation.take()
        before = draft.get("pod.network") or {}
        draft.put("pod.network", {**before, "attachments": names}, annotation)
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


def _refuse_other_accelerators(
    pod: Part, container: Part, metadata: Sequence[Part], source: str
) -> None:
    resources = container.at("resources")
    annotations = [note for part in metadata for note in part.at("annotations").each()]
    named = (
        *(part.last for kind in ("limits", "requests") for part in resources.at(kind).each()),
        *(part.last for part in pod.at("nodeSelector").each()),
        *(str(note.value) for note in annotations if note.last.endswith("device-class")),
    )
    if found := next((name for name in named if _OTHER_ACCELERATOR.search(name)), None):
        raise InputError(
            [
                Problem(
                    code="ImportUnclear",
                    what=f"{source} runs on {found}",
                    limit="and only GPUs of NVIDIA and AMD are planned",
                    remedy="leave it where it is",
                )
            ]
        )


def _words(part: Part) -> list[str]:
    return [str(word) for word in part.value] if isinstance(part.value, list) else []


def _literal(container: Part) -> dict[str, str]:
    return {
        str(item.at("name").value): str(item.at("value").value)
        for item in container.at("env").each()
        if item.at("value").is_there
    }


def _names_in(container: Part) -> frozenset[str]:
    text = " ".join(word for key in ("command", "args") for word in _words(container.at(key)))
    return frozenset(re.findall(r"\$[({]?(\w+)", text, re.ASCII))


def _claims(pod: Part) -> Iterator[tuple[str, Part]]:
    for volume in pod.at("volumes").each():
        claim = volume.at(*_CLAIM)
        if isinstance(claim.value, str) and claim.is_there:
            yield str(volume.at("name").value), volume


def _weights_at(model: str, pod: Part, container: Part) -> Weights | None:
    claims = dict(_claims(pod))
    for mount in container.at("volumeMounts").each():
        root = str(mount.at("mountPath").value or "").rstrip("/")
        volume = claims.get(str(mount.at("name").value))
        if volume and root and (model == root or model.startswith(f"{root}/")):
            sub, rest = str(mount.at("subPath").value or ""), model.removeprefix(root)
            _take_mount(volume, mount, "subPath")
            folder = "/".join(part for part in (sub.strip("/"), rest.strip("/")) if part)
            return Weights(claim=str(volume.at(*_CLAIM).value), folder=folder)
    return None


def _take_mount(volume: Part, mount: Part, *more: str) -> None:
    volume.at("name").take()
    volume.at(*_CLAIM).take()
    for key in ("name", "mountPath", "readOnly", *more):
        mount.at(key).take()


def _carry_place(draft: Draft, pod: Part) -> None:
    carry_selector(draft, pod.at("nodeSelector"))
    carry_tolerations(draft, pod.at("tolerations"))
    draft.carry("pod.priorityClassName", pod.at("priorityClassName"))
    draft.carry("pod.runtimeClassName", pod.at("runtimeClassName"))
    secrets = pod.at("imagePullSecrets")
    if names := [name for item in secrets.each() if (name := item.at("name").text())]:
        draft.put("pod.imagePullSecrets", [{"name": name} for name in names], secrets)


def carry_selector(draft: Draft, selector: Part) -> None:
    """Add labels that nodes must carry to a draft."""
    labels = {part.last: text for part in selector.each() if (text := part.text())}
    if labels:
        before = draft.get("placement.nodeSelector") or {}
        draft.put("placement.nodeSelector", {**before, **labels}, selector)


def carry_tolerations(draft: Draft, tolerations: Part) -> None:
    """Add tolerations to a draft."""
    kept = [
        {key: item.at(key).take() for key in TOLERATION if item.at(key).is_there}
        for item in tolerations.each()
    ]
    if kept:
        before = draft.get("placement.tolerations") or []
        draft.put("placement.tolerations", [*before, *kept], tolerations)


def carry_image(draft: Draft, image: str, *parts: Part) -> None:
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


def carry_volumes(draft: Draft, pod: Part, container: Part) -> None:
    """Add the claim that keeps downloads, and the folders that spec.pod.volumes admits, to a draft;
    the weights' own are taken before.
    """
    cache = _literal(container).get("HF_HOME", "").rstrip("/")
    kept = []
    for volume in pod.at("volumes").each():
        name = volume.at("name").value
        mounts = [
            mount
            for mount in container.at("volumeMounts").each()
            if mount.at("name").value == name and mount.at("mountPath").is_open
        ]
        paths = [str(mount.at("mountPath").value or "").rstrip("/") for mount in mounts]
        if not volume.at("name").is_open:
            continue
        if "/dev/shm" in paths or volume.at("emptyDir", "medium").value == "Memory":  # noqa: S108 - shared memory
            leave_together([volume, *mounts], _SHARED_MEMORY)
        elif volume.at("emptyDir").value is not None:
            leave_together([volume, *mounts], "the operator brings folders for what engines write")
        elif volume.at(*_CLAIM).is_there and {*paths} & {*HUB_CACHES, cache} - {""}:
            draft.put("model.weights.cache", {"claimName": volume.at(*_CLAIM).value}, volume)
            _take_mount(volume, next(iter(mounts)))
        elif len(mounts) == 1 and (own := _own_volume(volume, mounts[0])):
            kept.append(own)
    if kept:
        draft.put("pod.volumes", kept, pod.at("volumes"))


def _own_volume(volume: Part, mount: Part) -> dict[str, Any] | None:
    """Take a volume that spec.pod.volumes can say, else return None."""
    path, claim = mount.at("mountPath").value, volume.at("persistentVolumeClaim")
    if not isinstance(path, str) or not _MOUNTABLE.match(path) or mount.at("subPath").is_there:
        return None
    field: dict[str, Any] = {}
    if isinstance(claim.at("claimName").value, str):
        read_only = mount.at("readOnly").value is True or claim.at("readOnly").value is True
        field = {"pvc": {"claimName": claim.at("claimName").text(), "readOnly": read_only}}
        claim.at("readOnly").take()
    elif isinstance(volume.at("configMap", "name").value, str):
        field = {"configMap": {"name": volume.at("configMap", "name").text()}}
    if not field:
        return None
    for key in ("name", "mountPath", "readOnly"):
        mount.at(key).take()
    return {"name": volume.at("name").take(), "mountPath": path, **field}


def not_vllm(source: str) -> Problem:
    """Return the problem of an object that starts no vLLM."""
    return Problem(
        code="ImportUnclear",
        what=source,
        limit="has no container that starts vLLM",
        remedy="only what runs vLLM can be imported",
    )


def _two_engines(source: str, names: str) -> Problem:
    return Problem(
        code="ImportUnclear",
        what=source,
        limit=f"starts vLLM in more than one container ({names})",
        remedy="leave the one to be imported in a copy of the file",
    )
