"""What an engine is told beside the plan: the model to serve, and the settings of a start."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from shardwright.layouts.traits import DraftMethod
from shardwright.planning.report import Plan

DEFAULT_ADAPTER_RANK: Final = 16
"""Largest rank of an adapter if nobody names one; vLLM's own default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The settings of an engine's start that its environment carries: a folder of the pod's own,
    and limits in seconds.
    """

    own_dir: str
    load_seconds: int
    execute_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """The model to serve and how to serve it, beside the plan.

    ``model`` is a hub id or a folder, ``served_name`` the name that clients ask for.
    ``load_format`` is how weights are read (None: as the engine sees fit). ``quantization`` is the
    format into which the engine turns the weights while loading (None: as stored).
    ``rendezvous_seconds`` bounds the start-up of the ranks among each other, ``drain_seconds`` is
    the time that running requests have after SIGTERM. ``adapters`` are served beside the model: the
    name that clients ask for and the folder of each; ``adapter_rank`` is the largest rank of one.
    ``drafts_by`` is how tokens are drafted (None: they are not), ``draft_tokens`` in every step, by
    the model or head in ``draft_model`` if there is one. ``arguments`` are the user's, already
    checked. ``files_dir`` is the folder with the files that an engine reads. ``over_ray`` says that
    a Ray cluster joins the ranks of several pods.
    """

    model: str
    served_name: str
    version: str
    rendezvous_seconds: int
    drain_seconds: int
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


def attention_replicas_per_pod(plan: Plan) -> int:
    """Return the attention replicas of one pod if a group has them on several; 0: all ranks of a
    group are one world.

    Each is a world of its own, so that the engine must not be told of other nodes.
    """
    return plan.layout.attention_data // plan.nodes_per_replica if plan.nodes_per_replica > 1 else 0
