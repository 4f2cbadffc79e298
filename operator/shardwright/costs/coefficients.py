"""The few numbers of the cost model that no data sheet states, each with unit, basis and source.

None is keyed by a model, a GPU or a version.
"""

from typing import Final

COMPUTE_EFFICIENCY: Final = 0.55
"""Share of the dense data-sheet FLOP/s that serving reaches on large batches. Basis: fitted by hand to the dense vLLM
rows of published throughput measurements; docs/planner.md has the errors."""

MEMORY_EFFICIENCY: Final = 0.75
"""Share of the data-sheet memory bandwidth that reading weights reaches. Basis: published fit on H100 (1 / 1.36).
Source: inference-sim (BLIS), coefficient of the weights term."""

KV_EFFICIENCY: Final = 0.55
"""Share of the memory bandwidth that attention reaches while reading K/V. Basis: published fit on H100 (1 / 1.95),
rounded up for newer kernels. Source: inference-sim (BLIS), coefficient of the K/V term."""

LAYER_SECONDS: Final = 15e-6
"""Norms, rotary embedding and kernel starts of one layer in a CUDA graph, seconds. Basis: assumed, half of the 32
microseconds that inference-sim (BLIS) fitted for older kernels."""

STEP_SECONDS: Final = 1e-3
"""Scheduling, sampling and sending of one engine step, seconds. Basis: assumed."""

SEQUENCE_SECONDS: Final = 4.4e-6
"""Work per running request and step on the host, seconds. Basis: published fit. Source: inference-sim (BLIS)."""

REQUEST_SECONDS: Final = 15.6e-3
"""Tokenizing, admission and first answer of one request, seconds. Basis: published fit. Source: inference-sim (BLIS)."""

SCALE_UP_EFFICIENCY: Final = 0.75
"""Share of the link's bandwidth that collectives reach on NVLink, xGMI and PCIe. Basis: measured, NCCL and custom
all-reduce of 16 to 256 MB on A100 and H100 (0.70 to 0.81). Source: ai-dynamo/aiconfigurator@095f58a51, comm tables."""

NETWORK_EFFICIENCY: Final = 0.6
"""Share of the network's bandwidth that a collective of 1 to 300 MB reaches. Basis: assumed; large messages reach 0.8."""

CUSTOM_KERNEL_SECONDS: Final = 5e-6
"""Start-up of an engine's own all-reduce kernel inside a node, seconds. Basis: measured, 8 KiB on 2 to 8 GPUs (5.3 to
6.3 microseconds in a CUDA graph). Source: ai-dynamo/aiconfigurator@095f58a51, custom all-reduce tables."""

NCCL_SECONDS: Final = 10e-6
"""Start-up of an NCCL collective, seconds. Basis: measured, 8 KiB on 2 GPUs (11 microseconds) less its two steps.
Source: ai-dynamo/aiconfigurator@095f58a51, NCCL tables."""

CUSTOM_KERNEL_RANKS: Final = frozenset({2, 4, 6, 8})
"""Group sizes inside a node for which vLLM has its own all-reduce. Source: vLLM 0.32 ``custom_all_reduce.py``."""

EXPERT_IMBALANCE: Final = 1.25
"""Work of the busiest expert-parallel rank over the mean. Basis: assumed; routing is uneven, more so in small batches."""

THIN_SLICE_COLUMNS: Final = 128
"""Columns of an expert's slice at which its matrix product runs at half speed. Basis: assumed, one tile of the kernels."""

BAND_MEASURED: Final = 0.30
"""Half width of the 80 % band of throughput inside one node, share. Basis: assumed until the fit of coefficients."""

BAND_MODELLED: Final = 0.45
"""Half width where public measurements are missing: several nodes, NVL72 across trays, uneven stages. Basis: assumed."""
