"""The few numbers of the cost model that no data sheet states, each with unit, basis and source.

None is keyed by a model, a GPU or a version. *Fitted* means: random search over these coefficients together,
least absolute log error of throughput and time per output token on 416 published closed-loop vLLM measurements
(Llama-3.3-70B, gpt-oss-120b, DeepSeek-R1 and Qwen3-8B on H100, H200, B200, MI355X and A100; tensor 1 to 8), then
rounded. Source: InferenceX (396 rows), ROCm ATOM pull request 409 (11), gpustack lab (9). docs/planner.md has the errors.
They are fitted and judged on the same rows.
"""

from typing import Final

COMPUTE_EFFICIENCY: Final = 0.5
"""Share of the dense data-sheet FLOP/s that prompts and large batches reach. Basis: fitted."""

MEMORY_EFFICIENCY: Final = 0.7
"""Share of the data-sheet memory bandwidth that reading weights reaches. Basis: fitted."""

KV_EFFICIENCY: Final = 0.85
"""Share of the memory bandwidth that attention reaches while reading K/V. Basis: fitted (0.95), held below what
streaming reads reach."""

LAYER_SECONDS: Final = 30e-6
"""Norms, rotary embedding, sampling and kernel starts, per layer and step, seconds. Basis: fitted."""

STEP_SECONDS: Final = 0.5e-3
"""Scheduling and sending of one engine step that nothing hides, seconds. Basis: fitted."""

SEQUENCE_SECONDS: Final = 10e-6
"""Work per running request and step, seconds. Basis: fitted."""

REQUEST_SECONDS: Final = 40e-3
"""Tokenizing, admission and the way of the first answer, seconds per request. Basis: fitted, to times to first token."""

BUNCHING: Final = 0.15
"""Share of the other running requests' prompts that a prompt waits for: requests of like lengths finish together, so
their successors come together. Basis: fitted, to times to first token."""

RANK_SKEW_SECONDS: Final = 10e-6
"""What the ranks of a group wait for each other at every collective, seconds. Basis: fitted."""

CUSTOM_KERNEL_SECONDS: Final = 5e-6
"""Start-up of an engine's own all-reduce kernel inside a node, seconds. Basis: measured, 8 KiB on 2 to 8 GPUs (5.3 to
6.3 microseconds in a CUDA graph). Source: ai-dynamo/aiconfigurator@095f58a51, custom all-reduce tables."""

NCCL_SECONDS: Final = 10e-6
"""Start-up of an NCCL operation, seconds. Basis: measured, 8 KiB on 2 GPUs (11 microseconds) less its two steps.
Source: ai-dynamo/aiconfigurator@095f58a51, NCCL tables."""

CUSTOM_KERNEL_RANKS: Final = frozenset({2, 4, 6, 8})
"""Group sizes inside a node for which vLLM has its own all-reduce. Source: vLLM 0.32 ``custom_all_reduce.py``."""

SCALE_UP_EFFICIENCY: Final = 0.75
"""Share of the link's bandwidth that collectives reach on NVLink, xGMI and PCIe. Basis: measured, NCCL and custom
all-reduce of 16 to 256 MB on A100 and H100 (0.70 to 0.81). Source: ai-dynamo/aiconfigurator@095f58a51, comm tables."""

NETWORK_EFFICIENCY: Final = 0.6
"""Share of the network's bandwidth that a collective of 1 to 300 MB reaches. Basis: assumed; the largest reach 0.8."""

EXPERT_IMBALANCE: Final = 1.25
"""Work of the busiest expert-parallel rank over the mean. Basis: assumed; routing is uneven, more so in small batches."""

THIN_SLICE_COLUMNS: Final = 128
"""Columns of an expert's slice at which its matrix product runs at half speed. Basis: assumed, one tile of the kernels."""

BAND_MEASURED: Final = 0.30
"""Half width of the 80 % band of throughput inside one node, share. Basis: assumed; wider than the fit's own errors."""

BAND_MODELLED: Final = 0.45
"""Half width where public measurements are missing: several nodes, NVL72 across trays, uneven stages. Basis: assumed."""
