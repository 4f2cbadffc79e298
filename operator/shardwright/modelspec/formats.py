"""How quantized weights are stored, by the names that tools have for it."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from shardwright.modelspec.spec import WeightFormat

FP8_PER_TENSOR: Final = WeightFormat(name="fp8", bits=8, block=(0, 0), scale_bits=32)
"""What vLLM makes of BF16 weights with ``--quantization fp8``: one FP32 scale per matrix."""

FP8_BLOCKS: Final = WeightFormat(name="fp8", bits=8, block=(128, 128), scale_bits=32)
"""FP8 with an FP32 scale per square of 128 outputs and inputs, as DeepSeek publishes it."""

MXFP4: Final = WeightFormat(name="mxfp4", bits=4, block=(1, 32), scale_bits=8)
"""OCP MXFP4: 32 elements share an E8M0 exponent."""

NVFP4: Final = WeightFormat(name="nvfp4", bits=4, block=(1, 16), scale_bits=8, matrix_bits=64)
"""NVIDIA's FP4: 16 elements share an FP8 scale, and each matrix has an FP32 scale for itself and
one for its inputs.
"""

NF4: Final = WeightFormat(name="nf4", bits=4, block=(1, 64), scale_bits=32)
"""bitsandbytes' 4 bits: 64 elements share an FP32 scale (a little less where scales are quantized
too).
"""

INT8_PER_CHANNEL: Final = WeightFormat(name="int8", bits=8, block=(1, 0), scale_bits=32)
"""bitsandbytes' 8 bits: one FP32 scale per output."""

_INT8_ALONE: Final = WeightFormat(name="int8", bits=8, block=(1, 0), scale_bits=16, alone=True)
_INT4_GROUPS: Final = WeightFormat(
    name="int4", bits=4, block=(1, 128), scale_bits=16, zero_point_bits=16
)

_INT4_ZERO_POINTS: Final = WeightFormat(
    name="int4", bits=4, block=(1, 128), scale_bits=16, zero_point_bits=4
)

QUARK: Final[Mapping[tuple[str, str, bool], WeightFormat]] = MappingProxyType(
    {
        ("fp8_e4m3", "per_tensor", True): FP8_PER_TENSOR,
        ("fp8_e4m3", "per_channel", True): replace(FP8_PER_TENSOR, block=(1, 0)),
        ("fp8_e4m3", "per_block", True): FP8_BLOCKS,
        ("int8", "per_tensor", True): replace(INT8_PER_CHANNEL, block=(0, 0)),
        ("int8", "per_channel", True): INT8_PER_CHANNEL,
        ("int4", "per_group", False): _INT4_ZERO_POINTS,
        ("uint4", "per_group", False): _INT4_ZERO_POINTS,
        ("fp4", "per_group", True): MXFP4,
        ("fp4", "per_group", False): MXFP4,
    }
)
"""Quark's types of weights by their values, by what shares a scale, and by whether activations are
quantized too. Source: vLLM 0.32 ``quantization/quark/quark.py:_get_scheme_cls_from_config``.
"""

TORCHAO: Final = {
    "Float8DynamicActivationFloat8WeightConfig": replace(FP8_PER_TENSOR, block=(1, 0)),
    "Float8WeightOnlyConfig": replace(FP8_PER_TENSOR, block=(1, 0), alone=True),
    "Int8WeightOnlyConfig": _INT8_ALONE,
    "Int8DynamicActivationInt8WeightConfig": INT8_PER_CHANNEL,
    "Int4WeightOnlyConfig": _INT4_GROUPS,
}
"""TorchAO's configurations by name. Source: torchao ``quantization/quant_api.py``."""

MXFP8: Final = WeightFormat(name="fp8", bits=8, block=(1, 32), scale_bits=8)
"""OCP MXFP8: 32 elements share an E8M0 exponent."""

MODELOPT: Final[Mapping[str, WeightFormat]] = MappingProxyType(
    {
        "W4A16_NVFP4": NVFP4,
        "NVFP4": NVFP4,
        "MXFP4": MXFP4,
        "MXFP8": MXFP8,
        "FP8_PER_CHANNEL_PER_TOKEN": replace(FP8_PER_TENSOR, block=(1, 0)),
        "FP8_BLOCK_SCALES": FP8_BLOCKS,
        "FP8_PB": FP8_BLOCKS,
        "FP8": replace(FP8_PER_TENSOR, scale_bits=64),
    }
)
"""NVIDIA's algorithms by the start of their names: weights' storage, with the static scale of the
inputs beside. Source: vLLM 0.33 ``quantization/modelopt.py:LINEAR_ALGOS``.
"""
