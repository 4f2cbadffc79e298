"""GPUs named on the command line (``--gpus 16xH100,B200``) as the Nodes that a cluster with them
would show.

All commands read them alike: so many of a kind, or without a number as many as the load needs. A
product without a known size of node is refused unless that is given.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from shardwright.cli.output import print_note
from shardwright.errors import InputError, Problem
from shardwright.hardware.gpus import Gpu, catalogue_ids, find_gpu, load_gpus
from shardwright.hardware.identity import VENDORS
from shardwright.hardware.suitability import (
    PRODUCT_LABEL,
    has_profile,
    is_profile,
    named_profile,
    slice_of,
    slices_of_gpu,
    unknown_slices,
)
from shardwright.hardware.topology import CLIQUE_LABEL, Instance, load_instances

if TYPE_CHECKING:
    from shardwright.resolving.subject import Subject

MOST_USUAL: Final = 8
"""Most GPUs of a node by default. Basis: chosen; HGX and OAM boards have as many."""

GPUS_OF_A_TRAY: Final = 4
"""GPUs of a node where 72 are a rack. Source: notes of gpus.csv; NVL72 and Helios are 18 trays."""

GPUS: Final = "--gpus"

MOST_GPUS: Final = 100_000  # as in spec.budget.gpus

AS_NEEDED: Final = 1024
"""GPUs of a kind that is named without a number: the load may need as many. Basis: assumed; the
largest published deployments have a few hundred.
"""

_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,62}"
_NAMED: Final = re.compile(rf"(?:(-?[0-9]{{1,60}}) ?[xX] ?)?({_NAME})", re.ASCII)
_TURNED: Final = re.compile(rf"({_NAME}?) ?[xX] ?([0-9]{{1,6}})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedGpus:
    """``count`` GPUs of one product at most; NVLink joins ``gpus_per_domain``, also over nodes."""

    gpu: Gpu
    count: int
    gpus_per_node: int
    gpus_per_domain: int
    network_gbps_per_gpu: float | None = None


def read_named_gpus(
    texts: Iterable[str],
    *,
    gpus_per_node: int | None = None,
    network_gbps_per_gpu: float | None = None,
) -> tuple[NamedGpus, ...]:
    """Return the GPUs that ``--gpus`` names, each as COUNTxGPU or GPU.

    A product is an id of the catalogue or any name for one.

    Raises:
        InputError: with one problem for each text that does not name GPUs that can be planned.
    """
    read = [_read(text.strip(), gpus_per_node, network_gbps_per_gpu) for text in texts]
    found = tuple(gpus for gpus in read if isinstance(gpus, NamedGpus))
    problems = [problem for problem in read if isinstance(problem, Problem)]
    if not problems and (together := sum(gpus.count for gpus in found)) > MOST_GPUS:
        problems = [_out_of_range(together)]
    if problems:
        raise InputError(problems)
    return found


def kind_of(text: str) -> str:
    """Return the GPU that a text of ``--gpus`` names, without its number.

    >>> kind_of("8xH100"), kind_of("H100")
    ('H100', 'H100')
    """
    match = _NAMED.fullmatch(text.strip())
    return match[2] if match else text


def usual_node(gpu: Gpu) -> tuple[int, int] | None:
    """Return the usual number of GPUs per node of a product, and per NVLink domain across nodes.

    The largest instance type with up to eight of them decides, else the board or rack that joins
    them; None if there is none.

    >>> (
    ...     usual_node(find_gpu("H100")),
    ...     usual_node(find_gpu("GB200")),
    ...     usual_node(find_gpu("VR200-NVL-280GB")),
    ...     usual_node(find_gpu("GH200-96GB")),
    ... )
    ((8, 8), (4, 72), (4, 72), None)
    """
    rows = [
        row for row in load_instances().values() if row.gpu_id == gpu.id and row.gpus <= MOST_USUAL
    ]
    if not rows:
        most = GPUS_OF_A_TRAY if gpu.of_a_rack else MOST_USUAL
        return (
            (min(gpu.scale_up_gpus, most), gpu.scale_up_gpus)
            if gpu.scale_up and gpu.scale_up_gpus > 1
            else None
        )
    largest: Instance = max(rows, key=lambda row: (row.gpus, row.nvlink_domain_gpus))
    return largest.gpus, largest.nvlink_domain_gpus


def more_of(named: Sequence[NamedGpus]) -> Iterator[tuple[str, tuple[NamedGpus, ...]]]:
    """Yield larger numbers of each kind, the smallest first, and how they are named.

    A node is filled first; then each number is at most half again as great as the one before.
    """
    for count in _counts(named):
        for index, gpus in enumerate(named):
            if gpus.count < count <= AS_NEEDED and not (
                count > gpus.gpus_per_node and count % gpus.gpus_per_node
            ):
                grown = (*named[:index], replace(gpus, count=count), *named[index + 1 :])
                yield f"{GPUS} {','.join(f'{one.count}x{one.gpu.id}' for one in grown)}", grown


def _counts(named: Sequence[NamedGpus]) -> Sequence[int]:
    steps = {step for power in range(10) for step in (1 << power, 3 << power)}
    return sorted({*steps, *(gpus.gpus_per_node for gpus in named)})


def nodes_of(named: Sequence[NamedGpus]) -> tuple[Mapping[str, Any], ...]:
    """Return Nodes with these GPUs; a product's last node has the remainder."""
    return tuple(
        node
        for index, gpus in enumerate(named)
        for node in _nodes(gpus, index if len(named) > 1 else None)
    )


def _read(
    text: str, gpus_per_node: int | None, network_gbps_per_gpu: float | None
) -> NamedGpus | Problem:
    match = _NAMED.fullmatch(text)
    if match is None:
        return _unreadable(text)
    number, name = match[1], match[2]
    count = int(number) if number else AS_NEEDED
    if not 1 <= count <= MOST_GPUS:
        return _out_of_range(count)
    example = f"{number}x" if number else ""
    return _of_product(name, count, gpus_per_node, network_gbps_per_gpu, example=example)


def _out_of_range(count: int) -> Problem:
    return Problem(
        code="OutOfRange",
        path=GPUS,
        what=f"{count:,} GPUs",
        limit=f"must be from 1 to {MOST_GPUS:,}",
    )


def _unreadable(text: str) -> Problem:
    return Problem(
        code="GpusUnreadable",
        path=GPUS,
        what=f"{text!r:.80}",
        limit="must be a GPU, or a number, x and a GPU",
        remedy="write for example H100 or 8xH100,16xB200",
    )


def _of_product(
    name: str,
    count: int,
    gpus_per_node: int | None,
    network_gbps_per_gpu: float | None,
    *,
    example: str,
) -> NamedGpus | Problem:
    """Return GPUs of a product; ``example`` is the number before a GPU in advice."""
    gpu = find_gpu(name)
    profile = named_profile(name)
    if gpu is None:
        return _unknown(name, example)
    if problem := _not_planned(gpu, profile, example):
        return problem
    usual = usual_node(gpu)
    if usual is None and gpus_per_node is None:
        return Problem(
            code="NodeUnknown",
            path=GPUS,
            what=gpu.id,
            limit="stands in nodes of no known size",
            remedy="say how many a node has with --nodes-of",
        )
    whole = NamedGpus(
        gpu=gpu,
        count=count,
        gpus_per_node=gpus_per_node or (usual or (1, 1))[0],
        gpus_per_domain=usual[1] if usual else 1,
        network_gbps_per_gpu=network_gbps_per_gpu,
    )
    return _sliced(whole, profile) if profile else whole


def _not_planned(gpu: Gpu, profile: str, example: str) -> Problem | None:
    if profile and not is_profile(profile):
        return Problem(
            code="GpusUnreadable",
            path=GPUS,
            what=f"{profile!r:.80}",
            limit="must be a MIG profile",
            remedy=f"write for example {example}H100-SXM-80GB-MIG-3g.40gb",
        )
    if gpu.vendor not in VENDORS.values():
        return Problem(
            code="GpuUnknown",
            path=GPUS,
            what=f"{gpu.id} of {gpu.vendor}",
            limit=f"cannot be planned, only GPUs of {' and '.join(VENDORS.values())}",
            remedy="'shardwright gpus' lists those that can",
        )
    if not profile:
        return None
    if problem := unknown_slices(gpu):
        return replace(problem, path=GPUS)
    if has_profile(gpu, profile):
        return None
    return Problem(
        code="GpusUnreadable",
        path=GPUS,
        what=profile,
        limit=f"must be a MIG profile of {gpu.id}",
        remedy="'nvidia-smi mig -lgip' lists them on a node that has it",
    )


def _sliced(named: NamedGpus, profile: str) -> NamedGpus:
    return replace(
        named,
        gpu=slice_of(named.gpu, profile),
        gpus_per_node=named.gpus_per_node * slices_of_gpu(named.gpu, profile),
        gpus_per_domain=1,
    )


def _unknown(name: str, example: str) -> Problem:
    ids = catalogue_ids(name)
    if ids:
        return Problem(
            code="GpuUnknown",
            path=GPUS,
            what=f"{name!r}",
            limit=f"may be {' or '.join(ids)}",
            remedy=f"write for example {example}{ids[-1]}",
        )
    turned = _TURNED.fullmatch(name)
    near = (
        (f"{turned[2]}x{turned[1]}",) if turned and catalogue_ids(turned[1]) else nearest_gpus(name)
    )
    remedy = f"did you mean {' or '.join(near)}?" if near else "'shardwright gpus' lists them"
    return Problem(
        code="GpuUnknown",
        path=GPUS,
        what=f"{name!r}",
        limit="is not a GPU that can be planned",
        remedy=remedy,
    )


def nearest_gpus(name: str) -> tuple[str, ...]:
    """Return at most three ids similar to a name, best first; hyphens do not count.

    >>> nearest_gpus("H10O")[0], nearest_gpus("RTX5090"), nearest_gpus("A6000")
    ('H100-SXM-80GB', ('RTX-5090-32GB',), ('RTX-A6000-48GB',))
    """
    ids = [gpu.id for gpu in load_gpus().values() if gpu.vendor in VENDORS.values()]
    by_run: dict[str, list[str]] = {}
    for gpu_id in ids:
        for run in _runs(gpu_id):
            by_run.setdefault(run, []).append(gpu_id)
    wanted = name.lower().replace("-", "")
    close = difflib.get_close_matches(wanted, by_run, n=3, cutoff=0.6)
    found = by_run[wanted] if wanted in by_run else [by_run[run][0] for run in close]
    return tuple(dict.fromkeys(found))[:3]


def _runs(gpu_id: str) -> Iterator[str]:
    """Yield every run of an id's parts, without hyphens.

    >>> list(_runs("RTX-5090-32GB"))
    ['rtx', 'rtx5090', 'rtx509032gb', '5090', '509032gb', '32gb']
    """
    parts = gpu_id.lower().split("-")
    for first in range(len(parts)):
        for end in range(first + 1, len(parts) + 1):
            yield "".join(parts[first:end])


def _nodes(named: NamedGpus, pool: int | None) -> Iterator[Mapping[str, Any]]:
    resource = next(resource for resource, vendor in VENDORS.items() if vendor == named.gpu.vendor)
    prefix = (
        named.gpu.id.lower()
        if pool is None
        else f"{named.gpu.id.lower()}-{'abcdefghijklmnopqrstuvwxyz'[pool % 26]}"
    )
    for index, first in enumerate(range(0, named.count, named.gpus_per_node)):
        gpus = str(min(named.gpus_per_node, named.count - first))
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": f"{prefix}-{index + 1}",
                "labels": _labels(named, pool or 0, first),
            },
            "status": {"capacity": {resource: gpus}, "allocatable": {resource: gpus}},
        }


def _labels(named: NamedGpus, pool: int, first: int) -> dict[str, str]:
    key = PRODUCT_LABEL if named.gpu.mig_profile else "shardwright.io/gpu-model"
    labels = {key: named.gpu.id}
    if named.network_gbps_per_gpu:
        labels["shardwright.io/network-gbps-per-gpu"] = f"{named.network_gbps_per_gpu:g}"
    if named.gpus_per_domain > named.gpus_per_node:
        labels[CLIQUE_LABEL] = (
            f"00000000-0000-0000-{pool + 1:04x}-{first // named.gpus_per_domain:012x}.0"
        )
    return labels


def on_named_slices(subject: Subject, named: Iterable[NamedGpus]) -> Subject:
    """Return the subject on the slices (MIG) that all named GPUs share, if they share one."""
    profiles = {gpus.gpu.mig_profile for gpus in named}
    if len(profiles) != 1:
        return subject
    return replace(subject, terms=replace(subject.terms, mig_profile=profiles.pop()))


def on_named_gpus(subject: Subject, named: Sequence[NamedGpus]) -> Subject:
    """Return the subject on the named GPUs, without a node selector, as they have no labels."""
    written = subject.terms.mig_profile
    subject = on_named_slices(subject, named)
    if subject.terms.mig_profile != written:
        print_note(
            f"{subject.owner.name}: spec.placement.migProfile is "
            f"{written or 'not set'}, and --gpus names "
            f"{subject.terms.mig_profile or 'whole GPUs'}: these are planned on"
        )
    if not subject.terms.selector:
        return subject
    dropped = ", ".join(sorted(subject.terms.selector))
    print_note(
        f"{subject.owner.name}: spec.placement.nodeSelector is left out ({dropped}): GPUs of "
        "--gpus have no labels"
    )
    return replace(subject, terms=replace(subject.terms, selector={}))
