"""How quantized weights are stored, by the names that tools have for it."""

from dataclasses import replace
from typing import Final

from shardwright.modelspec.spec import Storage

FP8_PER_TENSOR: Final = Storage(name="fp8", bits=8, block=(0, 0), scale_bits=32)
"""What vLLM makes of BF16 weights with ``--quantization fp8``: one FP32 scale per matrix."""

MXFP4: Final = Storage(name="mxfp4", bits=4, block=(1, 32), scale_bits=8)
"""OCP MXFP4: 32 elements share an E8M0 exponent."""

NVFP4: Final = Storage(name="nvfp4", bits=4, block=(1, 16), scale_bits=8)
"""NVIDIA's FP4: 16 elements share an FP8 scale; the FP32 scale of each matrix is not counted."""

NF4: Final = Storage(name="nf4", bits=4, block=(1, 64), scale_bits=32)
"""bitsandbytes' 4 bits: 64 elements share an FP32 scale (a little less where scales are quantized too)."""

INT8_PER_CHANNEL: Final = Storage(name="int8", bits=8, block=(1, 0), scale_bits=32)
"""bitsandbytes' 8 bits: one FP32 scale per output."""

_INT8_ALONE: Final = Storage(name="int8", bits=8, block=(1, 0), scale_bits=16, alone=True)
_INT4_GROUPS: Final = Storage(name="int4", bits=4, block=(1, 128), scale_bits=16, zero_point_bits=16)

QUARK: Final = {
    "fp8_e4m3": FP8_PER_TENSOR,
    "int8": INT8_PER_CHANNEL,
    "fp4": MXFP4,
    "int4": Storage(name="int4", bits=4, block=(1, 128), scale_bits=16),
    "uint4": Storage(name="int4", bits=4, block=(1, 128), scale_bits=16, zero_point_bits=4),
}
"""Quark's types of weights. Source: vLLM 0.32 ``quantization/quark/quark.py``, ``_get_scheme_from_config``."""

TORCHAO: Final = {
    "Float8DynamicActivationFloat8WeightConfig": replace(FP8_PER_TENSOR, block=(1, 0)),
    "Float8WeightOnlyConfig": replace(FP8_PER_TENSOR, block=(1, 0), alone=True),
    "Int8WeightOnlyConfig": _INT8_ALONE,
    "Int8DynamicActivationInt8WeightConfig": INT8_PER_CHANNEL,
    "Int4WeightOnlyConfig": _INT4_GROUPS,
}
"""TorchAO's configurations by name. Source: torchao ``quantization/quant_api.py``."""

MODELOPT: Final = {
    "NVFP4": NVFP4,
    "MXFP4": MXFP4,
    "FP8_PB": replace(FP8_PER_TENSOR, block=(128, 128)),
    "FP8": replace(FP8_PER_TENSOR, scale_bits=64),
}
"""NVIDIA's algorithms by the start of their names: weights' storage, FP8 with the static scale of the inputs beside."""
