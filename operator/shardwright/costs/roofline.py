"""How long does one stage take for one step? Each kind of kernel computes or moves bytes, the
slower counts.

A *floor* is the time that the data sheet allows; the engine's coefficients say the share that is
reached, one share for all products.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from shardwright.costs.coefficients import Coefficients
from shardwright.costs.communication import Fabric, all_reduce_seconds, all_to_all_seconds
from shardwright.costs.work import AttentionWork, ModelWork, StageWork
from shardwright.hardware.gpus import Gpu

_UNITS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "fp8": ("fp8", "bf16", "fp16"),
        "int8": ("int8", "bf16", "fp16"),
        "nvfp4": ("fp4", "bf16", "fp16"),
        "mxfp4": ("fp4", "bf16", "fp16"),
        "int4": ("int4", "bf16", "fp16"),
        "fp16": ("fp16", "bf16"),
    }
)
"""Which unit multiplies weights that are stored so; where the GPU has none, they are widened first.
"""

# Of weights beside activations of 16 bits (``Storage.product``).
_ALONE: Final = ("none", "bf16", "fp16")

_PLAIN: Final = ("bf16", "fp16")
_ALL_REDUCES_PER_LAYER: Final = 2  # after attention and after the feed-forward block
# bf16 and fp16 cross links and memory as two bytes a value.
_ACTIVATION_BYTES: Final = 2
WIDENED_ROWS: Final = 32.0
"""Rows (of an expert: its own) up to which weights that the GPU has no unit for are widened while
they are read, for nothing. Basis: measured, Marlin keeps nearly the whole gain of 4 bits up to 16
to 32 rows. Source: arXiv 2408.11743, figure 1.
"""
DENSE_WIDENING: Final = 1.2
"""How many times longer further rows take in the matrices that every token passes (experts have the
fitted ``widening``). Basis: assumed; Marlin loses its gain over 16 bits between 64 and 256 rows,
and is up to a fifth behind with prompts. Source: arXiv 2408.11743, figures 1 and 9.
"""
_OVERLAP: Final = 3.0
"""How sharply computing hides behind reading memory: the norm of the two (infinite: the slower
alone). Basis: assumed.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One step's load on one attention rank: decoding sequences, and prompt tokens with mean
    context.

    ``context_tokens`` is the mean context of the sequences, ``verified`` the tokens that each has
    in this step, ``sampled`` the sequences that get a token. ``prompting`` is how many of the
    attention ranks have such a prompt in the same step: their tokens meet in the experts.
    ``expert_imbalance`` is the work of the busiest expert rank over the mean (None: as fitted).
    """

    sequences: float = 0.0
    verified: float = 1.0
    context_tokens: float = 0.0
    prompt_tokens: float = 0.0
    prompt_context_tokens: float = 0.0
    sampled: float = 0.0
    prompting: float = 1.0
    expert_imbalance: float | None = None

    @property
    def tokens(self) -> float:
        """Return the tokens that pass every layer."""
        return self.sequences * self.verified + self.prompt_tokens

    def met(self, peers: int) -> float:
        """Return the tokens of all attention ranks; a rank without a request takes part with
        one.
        """
        return (
            max(1.0, self.sequences * self.verified) * peers + self.prompt_tokens * self.prompting
            if peers > 1
            else self.tokens
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionFloor:
    """The least seconds of alike layers' attention on one rank, over ``window_tokens`` of context
    at most.

    Per token of context: ``kv_seconds`` of reading for one sequence, ``decode_seconds`` and
    ``prefill_seconds`` of computing for one decoding and one prompt token. ``state_seconds`` are of
    reading the state of each sequence, which does not grow with its context.
    """

    window_tokens: float  # infinite: all of the context
    kv_seconds: float
    decode_seconds: float
    prefill_seconds: float
    state_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFloor:
    """The least seconds of the parts of one rank of a stage, by its GPU's data sheet.

    ``token_seconds`` are per token in the matrix products, ``expert_token_seconds`` per token in
    one expert, over all expert layers. ``hot_share`` is the share of a layer's experts that one
    token uses (0 for dense models). ``attention`` has one floor per kind of layer.
    """

    layers: int
    products: int
    expert_layers: int
    experts: float
    hot_share: float
    weights_seconds: float
    expert_weights_seconds: float
    token_seconds: float
    expert_token_seconds: float
    head_token_seconds: float
    # Reading or writing one vector of the hidden size in every layer.
    hidden_token_seconds: float
    attention: tuple[AttentionFloor, ...]
    widened: bool  # most dense weights have no unit of their own
    four_bit_bytes: float  # of dense weights, if their unit multiplies four bits; else 0
    expert_widened: bool
    expert_columns: float  # of one expert's slice
    # What their shares of the unit's rate are fitted for: generation of GPU and format.
    product: str
    expert_product: str
    # How most dense and most expert weights are stored, "int4 widened" without a unit.
    formats: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """The traffic among the ranks of one stage in a layer.

    ``tensor`` joins the tensor group, ``experts`` all ranks that hold experts, ``context`` the
    ranks that share the K/V of one head.
    """

    tensor: Fabric
    experts: Fabric
    context: Fabric
    peers: int  # attention-data ranks
    expert_groups: int  # that the experts of a layer are dealt to; 1: every rank has a slice of all
    hidden_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Seconds of one step on one stage, by part."""

    weights_seconds: float
    kv_cache_seconds: float
    compute_seconds: float
    communication_seconds: float
    expert_communication_seconds: float
    context_communication_seconds: float
    overhead_seconds: float

    @property
    def total_seconds(self) -> float:
        """Return the whole step."""
        moved = (
            self.communication_seconds
            + self.expert_communication_seconds
            + self.context_communication_seconds
        )
        return (
            self.weights_seconds
            + self.kv_cache_seconds
            + self.compute_seconds
            + moved
            + self.overhead_seconds
        )


def _units(storage: str) -> tuple[str, ...]:
    return _ALONE if storage.endswith(" alone") else _UNITS.get(storage, _PLAIN)


def matmul_flops(gpu: Gpu, storage: str) -> float:
    """Return the FLOP/s of large matrix products on the unit for weights stored so.

    Formula: none: the measured rate if the catalogue has one, else the data sheet's.
    Unit: FLOP/s, dense.
    Error: the share that is reached is fitted: ``Coefficients.dense_share`` and ``expert_share``.
    Source: ``hardware/gpus.csv``, its columns of measured rates.

    >>> matmul_flops(h100, "bf16") / 1e12, matmul_flops(h100, "fp8") / 1e12
    (794.5, 1402.6)
    """
    rates = gpu.matmul_flops or gpu.flops
    units = _units(storage)
    return next((rates[unit] for unit in units if unit in rates), 0.0) or max(rates.values())


def widened(gpu: Gpu, storage: str) -> bool:
    """Return whether the GPU has no unit for weights stored so, and they are widened first.

    Formula: none: whether the GPU has the first unit of ``_UNITS``.
    Unit: yes or no.
    Error: exact, as far as the data sheet goes.
    Source: derived from ``hardware/gpus.csv``.

    >>> widened(h100, "fp8"), widened(h100, "nvfp4")
    (False, True)
    """
    units = _units(storage)
    return bool(storage) and storage not in _PLAIN and units[0] not in gpu.flops


def stage_floor(stage: StageWork, model: ModelWork, gpu: Gpu, kv_bits: int) -> StageFloor:
    """Return a stage's least times on a GPU that reaches its data sheet; K/V has ``kv_bits`` per
    value.

    Formula: bytes / memory bandwidth, FLOP / FLOP/s of the unit.
    Unit: seconds, per step, token or token of context.
    Error: a lower bound; the share that is reached is fitted.
    Source: derived: the roofline model, on the data sheet's figures.

    >>> from shardwright.costs.work import ModelWork
    >>> from shardwright.costs.memory import stage_holds
    >>> (hold,), work = stage_holds(llama, Layout(), "auto", vllm), ModelWork.of(llama)
    >>> stage = work.stage(Layout(), (0, 80), hold.weights, last=True)
    >>> stage_floor(stage, work, h100, 16).weights_seconds
    0.0414...
    >>> (hold.weights.total_bytes - hold.weights.embedding_bytes) / 3.35e12
    0.0414...
    """
    bandwidth = gpu.memory_bytes_per_second
    plain = matmul_flops(gpu, "bf16")
    dense = _mostly(stage.matmul_flops)
    experts = _mostly(stage.expert_flops)
    return StageFloor(
        layers=stage.layers,
        products=stage.products,
        expert_layers=stage.expert_layers,
        experts=stage.experts,
        hot_share=model.hot_share,
        weights_seconds=stage.dense_bytes / bandwidth,
        expert_weights_seconds=stage.expert_bytes / bandwidth,
        token_seconds=sum(
            flops / matmul_flops(gpu, storage) for storage, flops in stage.matmul_flops
        ),
        expert_token_seconds=sum(
            flops / matmul_flops(gpu, storage) for storage, flops in stage.expert_flops
        ),
        head_token_seconds=stage.head_flops / plain,
        hidden_token_seconds=stage.layers * model.hidden * _ACTIVATION_BYTES / bandwidth,
        attention=tuple(_attention_floor(work, gpu, kv_bits) for work in stage.attention),
        widened=widened(gpu, dense),
        four_bit_bytes=stage.dense_bytes
        if _units(dense)[0] == "fp4" and not widened(gpu, dense)
        else 0.0,
        expert_widened=widened(gpu, experts),
        expert_columns=stage.expert_columns,
        product=_product(gpu, dense),
        expert_product=_product(gpu, experts),
        formats=tuple(
            f"{name} widened" if widened(gpu, name) else name for name in (dense, experts) if name
        ),
    )


def _attention_floor(work: AttentionWork, gpu: Gpu, kv_bits: int) -> AttentionFloor:
    bandwidth = gpu.memory_bytes_per_second
    plain = matmul_flops(gpu, "bf16")
    return AttentionFloor(
        window_tokens=work.window,
        kv_seconds=work.kv_values * kv_bits / 8 / bandwidth,
        decode_seconds=work.decode_flops / plain,
        prefill_seconds=work.prefill_flops / plain,
        state_seconds=work.state_bytes / bandwidth,
    )


def _product(gpu: Gpu, storage: str) -> str:
    """Return what the share of a product is fitted for: alike GPUs and how weights are stored."""
    return f"{gpu.generation} {'16 bits' if storage in _PLAIN else storage}" if storage else ""


def _mostly(flops: tuple[tuple[str, float], ...]) -> str:
    return max(flops, key=lambda item: item[1], default=("", 0.0))[0]


def step_time(floor: StageFloor, links: Links, batch: Batch, fitted: Coefficients) -> StepTime:
    """Return the time of one step of one stage; monotone in every figure of the batch.

    Formula: join(products, reading weights) + join(scores, reading K/V) + collectives + matrices x
        start-up + tokens x activation traffic + requests x request time; join is the norm of power
        ``_OVERLAP``.
    Unit: seconds.
    Error: of TPOT, which it leads to: median 8.6% in sample, 10.3% of served loads with the model's
        shape held out (docs/benchmarks/accuracy.md).
    Source: derived (docs/planner-speed.md); shares and start-ups are fitted, the power is assumed.

    >>> from shardwright.costs.coefficients import coefficients_of
    >>> fitted, floor = coefficients_of("vLLM", ""), task.replica.kinds[0].floor
    >>> one = Batch(sequences=1, sampled=1)
    >>> step = step_time(floor, task.replica.links, one, fitted)
    >>> busy = floor.token_seconds * (1 + 64) / fitted.dense_share(floor.product)
    >>> busy += floor.head_token_seconds / fitted.compute_efficiency
    >>> read = floor.weights_seconds / fitted.memory_efficiency
    >>> round(1000 * (step.weights_seconds + step.compute_seconds), 3)  # ms, no context
    5.764
    >>> round(1000 * (read**3 + busy**3) ** (1 / 3), 3)
    5.764
    """
    tokens = batch.tokens
    dense = floor.token_seconds * _rows(tokens, fitted, widened=floor.widened)
    dense_compute = dense / fitted.dense_share(floor.product)
    dense_compute += floor.head_token_seconds * batch.sampled / fitted.compute_efficiency
    dense_weights = max(
        floor.weights_seconds / fitted.memory_efficiency,
        floor.four_bit_bytes / fitted.four_bit_bytes_per_second,
    )
    kv, scores = _attention(floor, batch, fitted)
    expert_compute, expert_weights = _experts(floor, links, batch, fitted)
    compute = 0.0
    weights = 0.0
    thin = 1 + fitted.thin_columns / max(1.0, floor.expert_columns)
    for busy, read, factor in (
        (dense_compute, dense_weights, 1.0),
        (expert_compute, expert_weights, thin),
    ):
        computing, snapshots = _joined(busy, read)
        compute, weights = compute + computing * factor, weights + snapshots * factor
    scores, kv = _joined(scores, kv)
    compute += scores
    return StepTime(
        weights_seconds=weights,
        kv_cache_seconds=kv,
        compute_seconds=compute,
        communication_seconds=_tensor_seconds(floor, links, tokens, fitted),
        expert_communication_seconds=_expert_seconds(floor, links, batch.met(links.peers), fitted),
        context_communication_seconds=_context_seconds(floor, links, tokens, fitted),
        overhead_seconds=_overhead_seconds(floor, batch, tokens, fitted),
    )


def _overhead_seconds(
    floor: StageFloor, batch: Batch, tokens: float, fitted: Coefficients
) -> float:
    return (
        floor.products * fitted.product_seconds
        + tokens * floor.hidden_token_seconds * fitted.activation_copies
        + batch.sequences * fitted.sequence_seconds
    )


def _rows(tokens: float, fitted: Coefficients, *, widened: bool) -> float:
    """Return the rows that a product of ``tokens`` takes the time of.

    Large tiles are padded, by ``saturation_tokens``. Kernels that widen weights have small ones: up
    to ``WIDENED_ROWS`` in the shadow of memory, further rows take ``DENSE_WIDENING`` times as long.
    """
    if widened:
        return tokens + (DENSE_WIDENING - 1) * max(0.0, tokens - WIDENED_ROWS)
    return tokens + fitted.saturation_tokens


def overlapped(one: float, other: float) -> float:
    """Return the time of two things that overlap, as parts of a step do.

    Formula: the norm of power ``_OVERLAP``.
    Unit: seconds.
    Error: assumed.
    Source: derived; the power is assumed.

    >>> round(overlapped(3.0, 4.0), 3)
    4.498
    """
    return sum(_joined(one, other))


def _joined(one: float, other: float) -> tuple[float, float]:
    """Return the time of two things that overlap, divided between them: near the longer one, more
    if they are alike.
    """
    # There is nothing to hide behind, and the ratio below would divide by zero.
    if one <= 0 or other <= 0:
        return max(0.0, one), max(0.0, other)
    longer, shorter = (one, other) if one > other else (other, one)
    power = (shorter / longer) ** _OVERLAP
    both = longer * math.pow(1 + power, 1 / _OVERLAP)
    less = both * power / (1 + power)
    return (both - less, less) if one > other else (less, both - less)


def _attention(floor: StageFloor, batch: Batch, fitted: Coefficients) -> tuple[float, float]:
    read = scores = 0.0
    for each in floor.attention:
        context = min(each.window_tokens, batch.context_tokens)
        read += batch.sequences * (each.kv_seconds * context + each.state_seconds)
        seen = min(each.window_tokens, batch.prompt_context_tokens)
        scores += (
            batch.sequences * batch.verified * context * each.decode_seconds
            + batch.prompt_tokens * seen * each.prefill_seconds
        )
    return read / fitted.kv_efficiency, scores / fitted.attention_efficiency


def _experts(
    floor: StageFloor, links: Links, batch: Batch, fitted: Coefficients
) -> tuple[float, float]:
    """Return the seconds of computing and of reading the routed experts of the busiest rank.

    All attention-data ranks' tokens meet here. An expert that is touched at all computes some rows
    more than it has.
    """
    if not floor.expert_weights_seconds or not floor.hot_share:
        return 0.0, 0.0
    stated = batch.expert_imbalance
    met = batch.met(links.peers)
    factor = 1.0
    if links.expert_groups > 1:
        doublings = math.log2(links.expert_groups)
        factor = 1 + fitted.expert_imbalance * doublings if stated is None else stated
    # Experts that no token of the batch wants are not read.
    missed = _missed(min(floor.hot_share, 1 - 1e-12), met, fitted.expert_evenness)
    # The others wait for the busiest rank in the collective that follows.
    touched = min(1.0, (1.0 - missed) * factor)
    experts = touched * floor.experts
    rows = (
        met * floor.hot_share * floor.experts * factor
        + experts * fitted.saturation_tokens * fitted.expert_padding
    )
    if floor.expert_widened:
        rows += (fitted.widening - 1) * max(0.0, rows - experts * WIDENED_ROWS)
    compute = floor.expert_token_seconds * rows / fitted.expert_share(floor.expert_product)
    return compute, floor.expert_weights_seconds * touched / fitted.memory_efficiency


def _missed(share: float, tokens: float, evenness: float) -> float:
    """Return the share of experts that none of ``tokens`` wants, each token ``share`` of them.

    Some experts are wanted more than others: how often one is has a beta distribution of mean
    ``share`` and shape ``evenness`` (infinite: all alike).
    """
    rarely = evenness * (1 - share) / share
    return math.exp(
        math.lgamma(rarely + tokens)
        - math.lgamma(rarely)
        + math.lgamma(rarely + evenness)
        - math.lgamma(rarely + evenness + tokens)
    )


def _tensor_seconds(floor: StageFloor, links: Links, tokens: float, fitted: Coefficients) -> float:
    if links.tensor.ranks == 1:
        return 0.0
    # With attention replicas the collective of the experts brings their sums back.
    reduced = _ALL_REDUCES_PER_LAYER * floor.layers - (
        floor.expert_layers if links.peers > 1 else 0
    )
    each = all_reduce_seconds(tokens * links.hidden_bytes, links.tensor)
    return reduced * (each + fitted.collective_seconds)


def _expert_seconds(floor: StageFloor, links: Links, met: float, fitted: Coefficients) -> float:
    """Return the seconds to gather all attention-data ranks' tokens and give back their sums, once
    a layer.

    Every rank gets every token, whether it has an expert for it or not:
    ``allgather_reducescatter``, vLLM's default of ``--all2all-backend`` (0.32
    ``config/parallel.py``), which is rendered.
    """
    # Within one attention replica every rank has all tokens already.
    if links.peers == 1 or not floor.expert_layers:
        return 0.0
    return (
        2
        * floor.expert_layers
        * (all_to_all_seconds(met * links.hidden_bytes, links.experts) + fitted.collective_seconds)
    )


def _context_seconds(floor: StageFloor, links: Links, tokens: float, fitted: Coefficients) -> float:
    """To share K/V, queries are gathered before attention, and partial results are summed
    after it.
    """
    if links.context.ranks == 1:
        return 0.0
    each = all_reduce_seconds(tokens * links.hidden_bytes, links.context)
    return 2 * floor.layers * (each + fitted.collective_seconds)


def hidden_bytes(model: ModelWork) -> int:
    """Return the bytes of one token's activations as they cross links.

    Formula: hidden size x 2.
    Unit: bytes a token.
    Error: exact for models that compute in 16 bits.
    Source: derived: bf16 and fp16 are two bytes a value.

    >>> from shardwright.costs.work import ModelWork
    >>> hidden_bytes(ModelWork.of(llama)), 8192 * 2
    (16384, 16384)
    """
    return model.hidden * _ACTIVATION_BYTES
