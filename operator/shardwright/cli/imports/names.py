"""KIND/NAME, as typed: an object of the cluster to import."""

from dataclasses import dataclass
from typing import Final

from shardwright.errors import InputError, Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedKind:
    """A kind that can be named in a cluster, its versions newest first."""

    kind: str
    brought_by: str
    group: str
    plural: str
    versions: tuple[str, ...]


_DEPLOYMENT: Final = ImportedKind(
    kind="Deployment", brought_by="Kubernetes", group="apps", plural="deployments", versions=("v1",)
)
_LEADER_WORKER_SET: Final = ImportedKind(
    kind="LeaderWorkerSet",
    brought_by="LeaderWorkerSet",
    group="leaderworkerset.x-k8s.io",
    plural="leaderworkersets",
    versions=("v1",),
)
_LLM_INFERENCE_SERVICE: Final = ImportedKind(
    kind="LLMInferenceService",
    brought_by="KServe",
    group="serving.kserve.io",
    plural="llminferenceservices",
    versions=("v1alpha2", "v1alpha1"),
)
_WORKSPACE: Final = ImportedKind(
    kind="Workspace",
    brought_by="KAITO",
    group="kaito.sh",
    plural="workspaces",
    versions=("v1beta1", "v1alpha1"),
)

KINDS: Final = {
    "deployment": _DEPLOYMENT,
    "deploy": _DEPLOYMENT,
    "leaderworkerset": _LEADER_WORKER_SET,
    "lws": _LEADER_WORKER_SET,
    "llminferenceservice": _LLM_INFERENCE_SERVICE,
    "llmisvc": _LLM_INFERENCE_SERVICE,
    "workspace": _WORKSPACE,
}
"""The kinds that can be named, as typed."""


def kind_and_name(word: str) -> tuple[str, str]:
    """Return the key of ``KINDS`` and the name that KIND/NAME stands for.

    Raises:
        InputError: it is not of that form, or of no such kind.

    >>> kind_and_name("LWS/llama"), kind_and_name("deployments/llama")
    (('lws', 'llama'), ('deployment', 'llama'))
    """
    kind, _, name = word.partition("/")
    if (kind.lower().removesuffix("s") not in KINDS and kind.lower() not in KINDS) or not name:
        what = f"{word!r:.80} is not KIND/NAME"
        raise InputError(
            [
                Problem(
                    code="NotAllowed",
                    path="KIND/NAME",
                    what=what,
                    remedy=f"kinds are {', '.join(KINDS)}",
                )
            ]
        )
    return (kind.lower() if kind.lower() in KINDS else kind.lower().removesuffix("s")), name
