"""The folders engines write to: only the pod's own, so that no file of an image must be writable.

Each library would use the same folder once ``HOME`` is the pod's. The variables are set all the
same, because the image's own may name a folder in it. Read in vLLM 0.32.0 and 0.33.0 and the
packages they install; TensorRT-LLM uses the same libraries. Both also write to /tmp and /dev/shm,
which are volumes.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final

from shardwright.engines.environment import is_admissible

TMP_DIR: Final = "/tmp"  # noqa: S108 - a volume of the pod
"""Sockets, files that are read once, Ray's logs, sessions of Open MPI. Source:
``VLLM_RPC_BASE_PATH`` in vLLM's envs.py and Python's ``tempfile``, which both take ``TMPDIR``.
"""

_HOME: Final = "home"

BELOW_OWN: Final[Mapping[str, str]] = MappingProxyType(
    {
        "HOME": _HOME,  # all that has no variable: ~/.deep_gemm, ~/.nv, ~/.ssh
        # the driver's own compiler; CUDA programming guide
        "CUDA_CACHE_PATH": f"{_HOME}/.nv/ComputeCache",
        # FlashInfer adds .cache/flashinfer; flashinfer/jit/env.py
        "FLASHINFER_WORKSPACE_BASE": _HOME,
        # else /tmp/torchinductor_USER; torch/_inductor/runtime/cache_dir_utils.py
        "TORCHINDUCTOR_CACHE_DIR": "inductor",
        "TRITON_CACHE_DIR": f"{_HOME}/.triton/cache",  # triton/knobs.py
        "XDG_CACHE_HOME": f"{_HOME}/.cache",  # Numba, outlines, torch.hub; numba/misc/appdirs.py
        # VLLM_CONFIG_ROOT and its usage counters; vllm/envs.py
        "XDG_CONFIG_HOME": f"{_HOME}/.config",
    }
)
"""Variable to folder below the pod's own."""


def written_folders(own_dir: str, chosen: Collection[str] = ()) -> Mapping[str, str]:
    """Return the variables for these folders, without those ``chosen`` that may be admitted."""
    folders = {name: f"{own_dir}/{folder}" for name, folder in BELOW_OWN.items()} | {
        "TMPDIR": TMP_DIR
    }
    return {
        name: folder
        for name, folder in folders.items()
        # A folder that the administrator admits goes before ours; one that nobody can admit does
        # not.
        if name not in chosen or not is_admissible(name)
    }
