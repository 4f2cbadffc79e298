"""How much of its node's memory does a pod take: the engine's processes, their shared memory,
Ray's?

The model changes none of it: weights pass through the page cache, which no pod requests.
"""

from math import ceil
from typing import Final

from shardwright.units import GIB, MIB

SHM_BASE_BYTES: Final = 1 * GIB
"""NCCL's and the executor's own share of ``/dev/shm``; assumed."""

SHM_BYTES_PER_WORKER: Final = 512 * MIB
"""One 240 MiB response queue and its reserve; 2 GiB for two workers is measured
(engine-measurements.md 2).
"""

HOST_BASE_BYTES: Final = 4 * GIB
"""API server and engine core; assumed from 0.9 GiB measured on CPU."""

HOST_BYTES_PER_WORKER: Final = 4 * GIB
"""Host memory of one worker: CUDA libraries, pinned buffers; assumed from 1.6 GiB measured on CPU.
``TOKEN_TABLE_BYTES`` of it are for the token numbers of its requests.
"""

TOKEN_TABLE_BYTES: Final = 1 * GIB
"""What a worker's reserve has for its table of token numbers: 1,024 requests of 262,144 tokens;
assumed.
"""

TOKEN_BYTES: Final = 4
"""Bytes of a token number in the pinned table that a worker keeps of all requests, each as long as
the longest. Source: vLLM 0.33 ``v1/worker/gpu/states.py`` (``max_num_reqs`` x ``max_model_len``, 32
bits).
"""

RAY_BYTES: Final = 640 * MIB
"""Ray's own processes in a pod: 508 MiB measured for a head of ray[default] 2.60, 380 for a head
and 260 for another node of ray (engine-measurements.md 1.2); rounded up.
"""

RAY_STORE_BYTES: Final = 256 * MIB
"""Ray's object store in ``/dev/shm``: it carries the settings of the ranks, no tensors; assumed,
Ray's own minimum is 75 MiB.
"""


def shared_memory_bytes(workers: int, *, over_ray: bool = False) -> int:
    """Return the size of ``/dev/shm`` for a pod of ``workers`` ranks; it counts as the pod's
    memory.

    Formula: ``SHM_BASE_BYTES`` + workers x ``SHM_BYTES_PER_WORKER`` (+ ``RAY_STORE_BYTES``).
    Unit: bytes of a pod.
    Error: assumed to be enough; two workers were measured to need 2 GiB, which this is.
    Source: engine-measurements.md 2 for a worker's part; the other two are assumed.

    >>> shared_memory_bytes(8) / GIB
    5.0
    """
    return SHM_BASE_BYTES + workers * SHM_BYTES_PER_WORKER + (RAY_STORE_BYTES if over_ray else 0)


def host_memory_bytes(workers: int, *, over_ray: bool = False, token_numbers: int = 0) -> int:
    """Return the memory to request for a pod of ``workers`` ranks, shared memory included.

    Formula: ``HOST_BASE_BYTES`` + workers x (``HOST_BYTES_PER_WORKER`` + what a table of
        ``token_numbers`` has beyond ``TOKEN_TABLE_BYTES``, in whole GiB) (+ ``RAY_BYTES``) + shared
        memory.
    Unit: bytes of a pod.
    Error: assumed to be enough: on a CPU 0.9 and 1.6 GiB were measured for the two parts, 4 are
        taken for each.
    Source: assumed; ``RAY_BYTES`` is measured (engine-measurements.md 1.2).

    >>> host_memory_bytes(8) / GIB, host_memory_bytes(8, token_numbers=1024 * 1_048_576) / GIB
    (41.0, 65.0)
    """
    table = max(0, ceil((TOKEN_BYTES * token_numbers - TOKEN_TABLE_BYTES) / GIB)) * GIB
    own = (
        HOST_BASE_BYTES + workers * (HOST_BYTES_PER_WORKER + table) + (RAY_BYTES if over_ray else 0)
    )
    return own + shared_memory_bytes(workers, over_ray=over_ray)
