"""The words for layouts, nodes and times that checks and reasons share."""

from shardwright.hardware.inventory import Pool
from shardwright.layouts.layout import Layout


def degrees(layout: Layout) -> str:
    """Return the degrees of one replica in words.

    >>> degrees(Layout(tensor=8, pipeline=2))
    'tensor 8 x pipeline 2'
    >>> degrees(Layout())
    'one GPU'
    """
    parts = [f"tensor {layout.tensor}"] if layout.tensor > 1 else []
    parts += [f"pipeline {layout.pipeline}"] if layout.pipeline > 1 else []
    parts += [f"expert {layout.expert}"] if layout.expert > 1 else []
    return " x ".join(parts) or "one GPU"


def copies(layout: Layout) -> str:
    """Return the degrees with the number of replicas in words.

    >>> copies(Layout(tensor=8, replicas=2)), copies(Layout(tensor=8))
    ('2 replicas of tensor 8', 'tensor 8')
    """
    return f"{layout.replicas} replicas of {degrees(layout)}" if layout.replicas > 1 else degrees(layout)


def nodes_of(count: int, pool: Pool) -> str:
    """Return a number of nodes of a pool in words."""
    return f"{count} node{'s' if count > 1 else ''} of {pool.name}"


def gpus_of(count: int, state: str) -> str:
    """Return a number of GPUs in words.

    >>> gpus_of(1, "free"), gpus_of(8, "healthy")
    ('1 free GPU', '8 healthy GPUs')
    """
    return f"{count} {state} GPU{'s' if count > 1 else ''}"


def requests_of(count: int) -> str:
    """Return a number of requests in words.

    >>> requests_of(1), requests_of(4096)
    ('1 request', '4,096 requests')
    """
    return f"{count:,} request{'s' if count != 1 else ''}"


def per_second(tokens: float) -> str:
    """Return a throughput.

    >>> per_second(1234.4)
    '1,234 tok/s'
    """
    return f"{tokens:,.0f} tok/s"


def duration(seconds: float) -> str:
    """Return a latency: milliseconds below a second, with tenths below 10 ms.

    >>> duration(0.0042), duration(0.042), duration(1.24)
    ('4.2 ms', '42 ms', '1.2 s')
    """
    if seconds >= 1:
        return f"{seconds:,.1f} s"
    return f"{seconds * 1000:.1f} ms" if seconds < 0.01 else f"{seconds * 1000:.0f} ms"  # noqa: PLR2004 - three digits
