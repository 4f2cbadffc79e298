"""What an engine is told beside the plan: the model to serve, and the settings of a start."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from shardwright.costs.workload import Phase
from shardwright.layouts.layout import DraftMethod
from shardwright.planning.report import Plan

DEFAULT_ADAPTER_RANK: Final = 16
"""Largest rank of an adapter if nobody names one; vLLM's own default."""

NO_HOST: Final = "none.invalid"
"""A host that nobody can have (RFC 2606): engines take an empty list for all hosts. Source: vLLM
0.32 and 0.33, ``multimodal/media/connector.py``; SGLang 0.5.23, ``srt/utils/common.py``.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A start's settings in the environment: the pod's own folder, limits in seconds."""

    own_dir: str
    load_seconds: int
    execute_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """The model to serve and how to serve it, beside the plan.

    ``model`` is a hub id or a folder, ``served_name`` the name for clients. ``load_format`` is how
    weights are read (None: as the engine sees fit), ``quantization`` the format they get while
    loading (None: as stored). ``load_seconds`` bounds the start until all ranks have loaded,
    ``drain_seconds`` running requests after SIGTERM, ``execute_seconds`` a step. ``adapters`` are
    served beside the model, each with a name for clients and a folder; ``adapter_rank`` is their
    largest rank. ``drafts_by`` is how tokens are drafted (None: not at all), ``draft_tokens`` in
    every step, by the model or head in ``draft_model`` if any. ``arguments`` are the user's,
    already checked. ``files_dir`` holds the files an engine reads. ``over_ray``: a Ray cluster
    joins the ranks of several pods. Requests name media of ``media_domains`` alone, one at least.
    ``guarded``:
    the guard in ``files_dir`` asks every request for the key. ``refuses``: what is too much is
    refused, and does not wait; ``by_priority``: what waits is served by the priority that clients
    say. ``gives_tokens``: a router asks for the tokens of prompts. ``phase`` is what it does of
    each request (None: all of it).
    """

    model: str
    served_name: str
    version: str
    load_seconds: int
    drain_seconds: int
    execute_seconds: int = 0
    revision: str | None = None
    load_format: str | None = None
    reader: Mapping[str, object] = field(default_factory=dict)
    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    drafts_by: DraftMethod | None = None
    draft_tokens: int = 0
    draft_model: str | None = None
    adapters: tuple[tuple[str, str], ...] = ()
    adapter_rank: int = DEFAULT_ADAPTER_RANK
    arguments: Mapping[str, object] = field(default_factory=dict)
    files_dir: str = ""
    over_ray: bool = False
    media_domains: tuple[str, ...] = (NO_HOST,)
    guarded: bool = False
    refuses: bool = False
    by_priority: bool = False
    gives_tokens: bool = False
    phase: Phase | None = None


def attention_replicas_per_pod(plan: Plan) -> int:
    """Return a pod's attention replicas if several pods have them; 0: one world of all ranks.

    Each is a world of its own, so the engine must not be told of other nodes.
    """
    return plan.layout.attention_data // plan.nodes_per_replica if plan.nodes_per_replica > 1 else 0
