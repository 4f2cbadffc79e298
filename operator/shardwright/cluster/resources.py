"""The resources the operator reads and writes, and their addresses."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A kind of object on the API server; ``prefix`` is the path of its group and version."""

    prefix: str
    plural: str
    kind: str

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """Return the path of a collection, an object or a subresource.

        >>> STATEFUL_SETS.path("models", "llama-0", "status")
        '/apis/apps/v1/namespaces/models/statefulsets/llama-0/status'
        """
        parts = ["namespaces", namespace] if namespace else []
        parts += [self.plural, *(part for part in (name, subresource) if part)]
        # Quoted: names come from resources of tenants, and a slash in one would be another path.
        return "/".join([self.prefix, *(quote(part, safe="") for part in parts)])

    @property
    def group(self) -> str:
        """Return the API group, empty for the core."""
        return self.api_version.rpartition("/")[0]

    @property
    def api_version(self) -> str:
        """Return the ``apiVersion`` of its objects."""
        return self.prefix.removeprefix("/apis/").removeprefix("/api/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """The objects of a kind in one namespace, or all of them."""

    resource: Resource
    namespace: str | None = None

    @property
    def path(self) -> str:
        """Return the path of their LIST."""
        return self.resource.path(self.namespace)

    def __str__(self) -> str:
        """Return the resource's name for the log, with its group if several have the kind."""
        resource, where = (self.resource, f" of {self.namespace}" if self.namespace else "")
        group = resource.api_version.partition("/")[0]
        return (f"{resource.plural}.{group}" if "." in group else resource.plural) + where


SHARDED_MODELS: Final = Resource(
    prefix="/apis/shardwright.io/v1alpha1", plural="shardedmodels", kind="ShardedModel"
)
NODES: Final = Resource(prefix="/api/v1", plural="nodes", kind="Node")
PODS: Final = Resource(prefix="/api/v1", plural="pods", kind="Pod")
SERVICES: Final = Resource(prefix="/api/v1", plural="services", kind="Service")
CONFIG_MAPS: Final = Resource(prefix="/api/v1", plural="configmaps", kind="ConfigMap")
SECRETS: Final = Resource(prefix="/api/v1", plural="secrets", kind="Secret")
STATEFUL_SETS: Final = Resource(prefix="/apis/apps/v1", plural="statefulsets", kind="StatefulSet")
CONTROLLER_REVISIONS: Final = Resource(
    prefix="/apis/apps/v1", plural="controllerrevisions", kind="ControllerRevision"
)
JOBS: Final = Resource(prefix="/apis/batch/v1", plural="jobs", kind="Job")
DEPLOYMENTS: Final = Resource(prefix="/apis/apps/v1", plural="deployments", kind="Deployment")
INFERENCE_POOLS: Final = Resource(
    prefix="/apis/inference.networking.k8s.io/v1", plural="inferencepools", kind="InferencePool"
)
DISRUPTION_BUDGETS: Final = Resource(
    prefix="/apis/policy/v1", plural="poddisruptionbudgets", kind="PodDisruptionBudget"
)
NETWORK_POLICIES: Final = Resource(
    prefix="/apis/networking.k8s.io/v1", plural="networkpolicies", kind="NetworkPolicy"
)
COMPUTE_DOMAINS: Final = Resource(
    prefix="/apis/resource.nvidia.com/v1beta1", plural="computedomains", kind="ComputeDomain"
)
SCALED_OBJECTS: Final = Resource(
    prefix="/apis/keda.sh/v1alpha1", plural="scaledobjects", kind="ScaledObject"
)
RESOURCE_SLICES: Final = Resource(
    prefix="/apis/resource.k8s.io/v1", plural="resourceslices", kind="ResourceSlice"
)
DEVICE_CLASSES: Final = Resource(
    prefix="/apis/resource.k8s.io/v1", plural="deviceclasses", kind="DeviceClass"
)
RESOURCE_CLAIMS: Final = Resource(
    prefix="/apis/resource.k8s.io/v1", plural="resourceclaims", kind="ResourceClaim"
)
CLAIM_TEMPLATES: Final = Resource(
    prefix="/apis/resource.k8s.io/v1", plural="resourceclaimtemplates", kind="ResourceClaimTemplate"
)
EVENTS: Final = Resource(prefix="/apis/events.k8s.io/v1", plural="events", kind="Event")
PRIORITY_CLASSES: Final = Resource(
    prefix="/apis/scheduling.k8s.io/v1", plural="priorityclasses", kind="PriorityClass"
)
RESOURCE_QUOTAS: Final = Resource(prefix="/api/v1", plural="resourcequotas", kind="ResourceQuota")
LIMIT_RANGES: Final = Resource(prefix="/api/v1", plural="limitranges", kind="LimitRange")
CLUSTER_ROLES: Final = Resource(
    prefix="/apis/rbac.authorization.k8s.io/v1", plural="clusterroles", kind="ClusterRole"
)
LEASES: Final = Resource(prefix="/apis/coordination.k8s.io/v1", plural="leases", kind="Lease")
ACCESS_REVIEWS: Final = Resource(
    prefix="/apis/authorization.k8s.io/v1",
    plural="selfsubjectaccessreviews",
    kind="SelfSubjectAccessReview",
)
TOKEN_REVIEWS: Final = Resource(
    prefix="/apis/authentication.k8s.io/v1", plural="tokenreviews", kind="TokenReview"
)
SUBJECT_REVIEWS: Final = Resource(
    prefix="/apis/authorization.k8s.io/v1",
    plural="subjectaccessreviews",
    kind="SubjectAccessReview",
)

REVIEWS: Final = (ACCESS_REVIEWS, TOKEN_REVIEWS, SUBJECT_REVIEWS)
"""Questions that are sent as objects; nothing of them is stored."""

DISCOVERY: Final = Resource(prefix="", plural="apis", kind="APIGroupList")
"""What the API server serves; everybody may ask."""

CHILDREN: Final = (STATEFUL_SETS, SERVICES, CONFIG_MAPS, DISRUPTION_BUDGETS, NETWORK_POLICIES)
"""The kinds of object that a ShardedModel owns."""

OPTIONAL_CHILDREN: Final = (
    COMPUTE_DOMAINS,
    CLAIM_TEMPLATES,
    SCALED_OBJECTS,
    DEPLOYMENTS,
    INFERENCE_POOLS,
)
"""Those of them that not every cluster has, or that not every installation may see."""
