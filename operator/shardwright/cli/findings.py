"""The checks of the doctor, and its possible findings: values without a sentence."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Check(StrEnum):
    """The checks, in the order in which they are said."""

    KUBERNETES = "Kubernetes"
    RESOURCE = "ShardedModels"
    OPERATOR = "Operator"
    RIGHTS = "Rights"
    INSTALLATIONS = "Installations"
    NODES = "Nodes"
    STORAGE = "Storage"
    MODELS = "Models"
    FETCHES = "ConfigFetches"
    NETWORK_POLICIES = "NetworkPolicies"


class Ailment(StrEnum):
    """The possible findings."""

    KUBERNETES_TOO_OLD = "KubernetesTooOld"
    NOT_SERVED = "NotServed"
    NOT_INSTALLED = "NotInstalled"
    NOT_READY = "NotReady"
    NOBODY_LEADS = "NobodyLeads"
    OTHER_VERSION = "OtherVersion"
    RIGHTS_MISSING = "RightsMissing"
    NAMESPACE_CLOSED = "NamespaceClosed"
    NAMESPACE_UNSEEN = "NamespaceUnseen"
    CLAIM_NOT_HELD = "ClaimNotHeld"
    NODE_SET_OF_NOBODY = "NodeSetOfNobody"
    NODE_SET_EMPTY = "NodeSetEmpty"
    NO_GPUS = "NoGpus"
    NODE_LEFT_OUT = "NodeLeftOut"
    NODE_WARNS = "NodeWarns"
    CLASS_MISSING = "StorageClassMissing"
    NO_DEFAULT_CLASS = "NoDefaultStorageClass"
    MODEL_STALLED = "ModelStalled"
    MODEL_STUCK = "ModelStuck"
    FETCH_FAILED = "FetchFailed"
    FETCH_SUSPENDED = "FetchSuspended"
    FETCH_OVERDUE = "FetchOverdue"
    FETCH_SLOW = "FetchSlow"
    POLICIES_NOT_ENFORCED = "NetworkPoliciesNotEnforced"
    POLICIES_UNCLEAR = "NetworkPoliciesUnclear"


class Result(StrEnum):
    """How a check ended."""

    FINE = "Fine"
    NOTED = "Noted"  #: something to know, which may be as it was meant
    WRONG = "Wrong"
    UNREAD = "Unread"  #: whoever asks may not read what it takes
    SKIPPED = "Skipped"  #: it was not asked for


class Enforcement(StrEnum):
    """Whether a NetworkPolicy stopped a pod; unclear if the pod never got through without one."""

    ENFORCED = "Enforced"
    IGNORED = "Ignored"
    UNCLEAR = "Unclear"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong, or to be known: which objects it is about, and the words of others
    about it.
    """

    ailment: Ailment
    objects: tuple[str, ...] = ()
    namespace: str = ""
    about: str = ""
    said: str = ""
    wrong: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """One check with its findings."""

    check: Check
    result: Result
    findings: tuple[Finding, ...] = ()


def examined(check: Check, read: object, findings: Iterable[Finding]) -> Examined:
    """Return the result of a check with these findings. ``read`` is None if the check could not be
    made.
    """
    if read is None:
        return Examined(check=check, result=Result.UNREAD)
    found = tuple(findings)
    if any(finding.wrong for finding in found):
        return Examined(check=check, result=Result.WRONG, findings=found)
    return Examined(
        check=check, result=Result.NOTED if found else Result.FINE, findings=found
    )
