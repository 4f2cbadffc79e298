"""Rules between fields of ``spec.pod``, without the administrator's admissions (not known to the
API server).
"""

from typing import Final

from shardwright.api.network import (
    is_no_gpu,
    memory_is_locked_for_rdma,
    resources_come_with_explicit,
)
from shardwright.api.parts import LABEL_KEY, LABEL_KEY_MAX_LENGTH
from shardwright.api.pod import (
    MOUNT_PATTERN,
    OPEN_KEYS,
    RESERVED_DOMAINS,
    RESERVED_KEYS,
    RESERVED_PATTERN,
    VOLUME_ROOTS,
    folders_differ,
    has_one_kind,
    is_mounted_aside,
    keys_are_label_keys,
    keys_are_open,
)
from shardwright.api.rule import Rule

_OPEN: Final = ", ".join(map(repr, sorted(OPEN_KEYS)))
_TAKEN: Final = ", ".join(map(repr, sorted(RESERVED_KEYS)))


def _of_keys(kind: str) -> tuple[Rule, Rule]:
    return (
        Rule(
            code="BadLabelKey",
            path=f"spec.pod.{kind}",
            field="",
            cel=f"self.all(key, size(key) <= {LABEL_KEY_MAX_LENGTH} "
            f"&& key.matches(r'{LABEL_KEY}'))",
            message=f"{kind} must have label keys: an optional prefix and a slash, then at most "
            "63 letters, digits, '-', '_' or "
            "'.'; correct the key",
            holds=keys_are_label_keys,
        ),
        Rule(
            code="ReservedKey",
            path=f"spec.pod.{kind}",
            field="",
            cel=f"self.all(key, key in [{_OPEN}] || !(key in [{_TAKEN}] || "
            f"key.matches(r'{RESERVED_PATTERN}')))",
            message=f"{kind} must not be under {', '.join(RESERVED_DOMAINS)}, nor "
            f"{', '.join(sorted(RESERVED_KEYS))}: the "
            "operator, Kubernetes, networks and schedulers set them; use a prefix of your own "
            f"({', '.join(sorted(OPEN_KEYS))} are open)",
            holds=keys_are_open,
        ),
    )


POD_RULES: Final = (
    Rule(
        code="RdmaResources",
        path="spec.pod.network",
        field=".resources",
        cel="(self.rdma == 'Explicit') == (has(self.resources) && size(self.resources) > 0)",
        message="resources must come with rdma Explicit, "
        "and Explicit with resources; set both or neither",
        holds=resources_come_with_explicit,
    ),
    Rule(
        code="RdmaResourceName",
        path="spec.pod.network.resources[]",
        field=".name",
        cel="!self.name.matches('^([^/]*[.])?kubernetes[.]io/|^(nvidia|amd)[.]com/(gpu|mig-)')",
        message="resources must name those that a network's device plugin offers (rdma/..., "
        "vpc.amazonaws.com/efa); remove GPUs, "
        "which come from the plan, and names of Kubernetes",
        holds=is_no_gpu,
    ),
    Rule(
        code="LockMemoryWithoutRdma",
        path="spec.pod.network",
        field=".lockMemory",
        cel="!self.lockMemory || self.rdma != 'None'",
        message="lockMemory must not be set with rdma "
        "None: TCP locks no memory; remove one of the two",
        holds=memory_is_locked_for_rdma,
    ),
    *_of_keys("labels"),
    *_of_keys("annotations"),
    Rule(
        code="VolumeKind",
        path="spec.pod.volumes[]",
        field="",
        cel="[has(self.configMap), has(self.secret), has(self.pvc), "
        "has(self.emptyDir)].filter(given, given).size() == 1",
        message="a volume must have exactly one of configMap, "
        "secret, pvc and emptyDir; set one of them",
        holds=has_one_kind,
    ),
    Rule(
        code="ReservedMountPath",
        path="spec.pod.volumes[]",
        field=".mountPath",
        cel=f"self.mountPath.matches('{MOUNT_PATTERN}')",
        message=f"mountPath must be a folder below {', '.join(VOLUME_ROOTS)}: elsewhere the image "
        "has its programs and the "
        "operator mounts its own files; use a folder below one of these",
        holds=is_mounted_aside,
    ),
    Rule(
        code="MountPathTwice",
        path="spec.pod",
        field=".volumes",
        cel="!has(self.volumes) || self.volumes.all(one, self.volumes.exists_one(other, "
        "other.mountPath == one.mountPath || one.mountPath.startsWith(other.mountPath + '/')))",
        message="volumes must have a mountPath each of their own, none inside another; give one "
        "of them another folder",
        holds=folders_differ,
    ),
)
"""All of them; the order is the order of the messages."""
