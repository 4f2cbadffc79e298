"""KIND/NAME: an object of a cluster that is to be imported, as it is typed.

Refuses a word of another form, and a kind that cannot be imported.
"""

from typing import Final

from shardwright.errors import InputError, Problem

KINDS: Final = {
    "deployment": ("Deployment", "apps", "deployments", ("v1",)),
    "deploy": ("Deployment", "apps", "deployments", ("v1",)),
    "leaderworkerset": (
        "LeaderWorkerSet",
        "leaderworkerset.x-k8s.io",
        "leaderworkersets",
        ("v1",),
    ),
    "lws": ("LeaderWorkerSet", "leaderworkerset.x-k8s.io", "leaderworkersets", ("v1",)),
    "llminferenceservice": (
        "LLMInferenceService",
        "serving.kserve.io",
        "llminferenceservices",
        ("v1alpha2", "v1alpha1"),
    ),
    "llmisvc": (
        "LLMInferenceService",
        "serving.kserve.io",
        "llminferenceservices",
        ("v1alpha2", "v1alpha1"),
    ),
    "workspace": ("Workspace", "kaito.sh", "workspaces", ("v1beta1", "v1alpha1")),
}
"""What can be named in a cluster: kind, API group, plural, and versions, the newest first."""


def kind_and_name(word: str) -> tuple[str, str]:
    """Return the key of ``KINDS`` and the name that KIND/NAME stands for.

    Raises:
        InputError: it is not of that form, or of no such kind.

    >>> kind_and_name("LWS/llama"), kind_and_name("deployments/llama")
    (('lws', 'llama'), ('deployment', 'llama'))
    """
    kind, _, name = word.partition("/")
    if (
        kind.lower().removesuffix("s") not in KINDS and kind.lower() not in KINDS
    ) or not name:
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
    return (
        kind.lower() if kind.lower() in KINDS else kind.lower().removesuffix("s")
    ), name
