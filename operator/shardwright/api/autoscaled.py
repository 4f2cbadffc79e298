"""Pools of nodes that an autoscaler adds on demand, as an administrator describes them.

A pool on whose nodes nothing could be planned is refused, and one whose labels name an NVLink
domain over several nodes.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints

from shardwright.api.parts import LABEL_KEY, LabelValue, Part
from shardwright.api.violations import read_part
from shardwright.errors import InputError, Problem
from shardwright.hardware.domains import DomainKind
from shardwright.hardware.inventory import NodeExclusion
from shardwright.hardware.nodes import read_node
from shardwright.hardware.provisioning import HOSTNAME, AutoscaledPool
from shardwright.hardware.slices import is_slice
from shardwright.hardware.stated import Stated
from shardwright.hardware.suitability import RESOURCES

AUTOSCALED_POOLS: Final = "autoscaledPools"

POOLS_MAX: Final = 32
NODES_MAX: Final = 1_000
"""Nodes of one pool, and of all together. Basis: assumed; each of them is planned with as if it
were there.
"""


class PoolTaint(Part):
    """A taint that the nodes carry."""

    key: Annotated[str, StringConstraints(max_length=317, pattern=LABEL_KEY)] = Field(
        description="Its key."
    )
    value: LabelValue = Field(default="", description="Its value.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = Field(
        description="Its effect."
    )


class DescribedPool(Part):
    """One pool of nodes that need not exist yet."""

    name: str = Field(
        pattern=r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$",
        description="Its name, for status and messages.",
    )
    max_nodes: int = Field(
        ge=1,
        le=NODES_MAX,
        description="Nodes that its autoscaler makes at most, those that exist included.",
    )
    selector: dict[str, LabelValue] = Field(
        max_length=16,
        description="Labels that its nodes alone carry and its autoscaler knows, as "
        "karpenter.sh/nodepool: pods ask by them.",
    )
    labels: dict[str, LabelValue] = Field(
        default_factory=dict,
        max_length=64,
        description="Further labels of its nodes once they are up, as nvidia.com/gpu.product and "
        "nvidia.com/gpu.memory.",
    )
    allocatable: dict[str, Annotated[int, Field(ge=0, le=1_000_000)]] = Field(
        max_length=16,
        description="Devices that pods may request of one node, as nvidia.com/gpu, by resource.",
    )
    taints: list[PoolTaint] = Field(
        default_factory=list, max_length=16, description="Taints that its nodes keep."
    )


class DescribedPools(Part):
    """The setting as a whole."""

    autoscaled_pools: list[DescribedPool] = Field(alias=AUTOSCALED_POOLS, max_length=POOLS_MAX)


def read_pools(described: object, stated: Stated) -> tuple[AutoscaledPool, ...]:
    """Return the pools of the setting ``autoscaledPools``.

    ``stated`` is what the administrator states of GPUs and nodes.

    Raises:
        InputError: every violation, with its path; a pool on which nothing can be planned is one.
    """
    found = read_part(DescribedPools, {AUTOSCALED_POOLS: described}).autoscaled_pools
    if problems := list(_broken_rules(found)):
        raise InputError(problems)
    read = [_read(one, f"{AUTOSCALED_POOLS}[{index}]", stated) for index, one in enumerate(found)]
    if problems := [item for item in read if isinstance(item, Problem)]:
        raise InputError(problems)
    return tuple(item for item in read if isinstance(item, AutoscaledPool))


def _broken_rules(found: list[DescribedPool]) -> Iterator[Problem]:
    for index, one in enumerate(found):
        at = f"{AUTOSCALED_POOLS}[{index}]"
        if one.name in {other.name for other in found[:index]}:
            yield Problem(
                code="Duplicate",
                path=f"{at}.name",
                what=f"{one.name} is there twice",
                remedy="rename one of the two",
            )
        yield from _broken_rules_of(one, at)
    total = sum(one.max_nodes for one in found)
    if total > NODES_MAX:
        yield Problem(
            code="OutOfRange",
            path=AUTOSCALED_POOLS,
            what=f"{total} nodes of all pools",
            limit=f"must be at most {NODES_MAX}",
            remedy="lower maxNodes",
        )


def _broken_rules_of(one: DescribedPool, at: str) -> Iterator[Problem]:
    if not one.selector:
        remedy = "name a label that its nodes alone carry and its autoscaler knows"
        yield Problem(
            code="MissingField", path=f"{at}.selector", what="names no label", remedy=remedy
        )
    if HOSTNAME in one.selector:
        what = f"{HOSTNAME} tells single nodes apart"
        yield Problem(
            code="UnknownField",
            path=f"{at}.selector",
            what=what,
            remedy="name a label that all its nodes share",
        )
    if not any(
        count and (name in RESOURCES or is_slice(name)) for name, count in one.allocatable.items()
    ):
        what, remedy = "its nodes have no GPUs", f"state {' or '.join(RESOURCES)}"
        yield Problem(code="MissingField", path=f"{at}.allocatable", what=what, remedy=remedy)


def _read(one: DescribedPool, at: str, stated: Stated) -> AutoscaledPool | Problem:
    labels = {**one.labels, **one.selector}
    node = {
        "metadata": {"name": one.name, "labels": labels},
        "spec": {"taints": [taint.model_dump() for taint in one.taints]},
        "status": {"allocatable": {name: str(count) for name, count in one.allocatable.items()}},
    }
    found = read_node(node, stated)
    assert found is not None  # noqa: S101 - its nodes have GPUs
    if isinstance(found, NodeExclusion):
        return replace(
            found.problem,
            path=f"{at}.labels",
            remedy="state the labels that its nodes carry once they are up",
        )
    if found.domain.kind is DomainKind.CLIQUE:
        what = "a label names an NVLink domain over several nodes"
        return Problem(
            code="UnknownField",
            path=f"{at}.labels",
            what=what,
            remedy="leave it out: new nodes are in one of their own",
        )
    return AutoscaledPool(
        name=one.name,
        max_nodes=one.max_nodes,
        selector=tuple(sorted(one.selector.items())),
        pattern=found,
    )
