"""Asks vLLM which attention backend it takes, GPU by GPU. Runs in the engine's environment.

    python backends.py         one JSON object: rows, and digests of what was read and not called

Every GPU is asked about in a process of its own, for vLLM keeps what it has found out about it. The
engine's own selection is called with what a layer of a model would ask it:

    _get_backend_priorities, validate_configuration      platforms/cuda.py, platforms/rocm.py
    _select_dsv4_attn_cls, the backend of that class     models/deepseek_v4
    select_main_backend_and_impl_cls                     models/minimax_m3

There is no GPU and no compiled part: what a stock image brings (FlashAttention, FlashInfer,
FlashMLA, DeepGEMM; AITER on AMD for the indexer alone) is said to be there. Functions that ask a driver are
not called; :data:`READ` has their digests, so that a change of one is noticed.
"""

import contextlib
import hashlib
import importlib
import inspect
import itertools
import json
import os
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import checker  # type: ignore[import-not-found]  # beside this file, of the engine's world

NVIDIA = ("7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "10.3", "10.7", "11.0", "12.0", "12.1")
AMD = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201", "gfx1250")
CACHES = ("auto", "fp8")
PER_HEAD = "fp8_per_head"
"""FP8 with a scale for every head, as some checkpoints of llm-compressor have it."""

HEADS = (*range(32, 257, 8), 288, 320, 384, 448, 512, 576)
LATENT_HEADS = (288, 320, 512, 576)
SELECTED = (512, 1024, 2048, 4096)

READ = (
    ("vllm.utils.import_utils", "has_deep_gemm"),
    ("vllm.v1.attention.ops.flashmla", "_is_flashmla_available"),
    ("vllm.v1.worker.gpu.spec_decode.eagle.utils", "maybe_share_target_embed"),
    ("vllm.v1.core.encoder_cache_manager", "compute_mm_encoder_budget"),
    ("vllm.config.compilation", "CompilationConfig.resolve_cudagraph_mode_and_sizes"),
    ("vllm.model_executor.layers.fused_moe.oracle.fp8", "refine_fp8_moe_block_shape"),
    ("vllm.model_executor.layers.quantization.fp8", "Fp8MoEMethod.__init__"),
    ("vllm.model_executor.layers.sparse_attn_indexer", "SparseAttnIndexer.forward_hip"),
)
"""What is answered for, or decided, without being called."""


def main() -> None:
    import torch  # noqa: F401 - what every process needs, loaded once
    import transformers.models.auto.image_processing_auto  # noqa: F401 - asks torchvision

    answers = [_in_a_process(_asked_of_nvidia)]
    answers += [_in_a_process(partial(_asked_of_amd, gpu)) for gpu in AMD]
    rows: dict[str, dict[str, str]] = {}
    for architecture, asked in (item for answer in answers for item in answer.items()):
        for row, backend in asked.items():
            rows.setdefault(row, {})
            if backend:
                rows[row][architecture] = backend
    _pretend_packages()
    checker.pretend_gpus()
    from vllm.triton_utils import triton

    # Triton is not here; modules of recurrent layers look into its configurations.
    triton.Config = lambda kwargs, **named: types.SimpleNamespace(kwargs=kwargs, **named)
    answer = {
        "architectures": [*NVIDIA, *AMD],
        "rows": _joined(rows),
        "refines": _refines(),
        "uncut": {"Gemma4ForConditionalGeneration": _uncut_tokens()},
        "schemes": [_scheme(scheme) for scheme in _schemes()],
        "drafters": [_drafter(*target) for target in PREDICTING],
        "read": dict(_read()),
    }
    print(f"{checker.PREFIX}{json.dumps(answer)}", flush=True)


def _joined(rows: Mapping[str, Mapping[str, str]]) -> list[dict[str, Any]]:
    """Return one row of kinds and of widths of heads that are served alike."""
    widths: dict[tuple[str, str], list[int]] = {}
    for name, served in rows.items():
        kind, cache, head, selected = name.split()
        targets: dict[str, list[str]] = {}
        for target, backend in served.items():
            targets.setdefault(backend, []).append(target)
        alike = json.dumps({"cache": cache, "selected": int(selected), "backends": targets})
        widths.setdefault((kind, alike), []).append(int(head))
    kinds: dict[tuple[str, tuple[int, ...]], list[str]] = {}
    for (kind, alike), heads in widths.items():
        kinds.setdefault((alike, tuple(heads)), []).append(kind)
    return [
        {"kinds": those, "heads": list(heads), **json.loads(alike)}
        for (alike, heads), those in kinds.items()
    ]


def _in_a_process(ask: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.close(reading)
        with os.fdopen(writing, "w") as answers:
            answers.write(json.dumps(ask()))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answers:
        text = answers.read()
    os.wait()
    found: dict[str, Any] = json.loads(text)
    return found


def _asked_of_nvidia() -> dict[str, Any]:
    """Return the answers for NVIDIA's GPUs: the engine is imported once, and asked in forks."""
    platform = _pretend_nvidia()

    def asked(architecture: str) -> dict[str, str]:
        major, minor = architecture.split(".")
        checker.PretendedGpu.capability = (int(major), int(minor))
        return dict(_asked(platform))

    return {gpu: _in_a_process(partial(asked, gpu)) for gpu in NVIDIA}


def _asked_of_amd(architecture: str) -> dict[str, Any]:
    return {architecture: dict(_asked(_pretend_amd(architecture)))}


def _asked(platform: Any) -> Iterator[tuple[str, str]]:
    """Yield each question in words, and the backend that would serve it (empty: none)."""
    select = _selection(platform)
    for head, cache in itertools.product(HEADS, (*CACHES, PER_HEAD)):
        yield f"Dense {cache} {head} 0", select(head, cache)
        yield f"Sliding {cache} {head} 0", select(head, cache, has_sliding_window=True)
        sinks = select(head, cache, has_sliding_window=True, has_sink=True)
        yield f"Sinks {cache} {head} 0", sinks and select(head, cache, has_sink=True)
    for head, cache in itertools.product(LATENT_HEADS, CACHES):
        _pretend_model(head, 0)
        yield f"Latent {cache} {head} 0", select(head, cache, use_mla=True)
        for selected in SELECTED:
            _pretend_model(head, selected)
            found = select(head, cache, use_mla=True, use_sparse=True)
            yield f"SelectedLatent {cache} {head} {selected}", found if _indexes() else ""
    for cache in CACHES:
        yield f"CompressedLatent {cache} 512 0", _compressed(cache)
        yield f"SelectedBlocks {cache} 128 0", _blocks(cache)
    yield "State auto 0 0", _state()


def _selection(platform: Any) -> Callable[..., str]:
    import torch
    from vllm.v1.attention.selector import AttentionSelectorConfig

    capability = platform.get_device_capability()
    halves = not platform.is_rocm() and capability.major < 8
    dtype = torch.float16 if halves else torch.bfloat16

    def select(head: int, cache: str, **asked: bool) -> str:
        form = {"use_per_head_quant_scales": True} if cache == PER_HEAD else {}
        cached = "fp8" if cache == PER_HEAD else cache
        wanted = AttentionSelectorConfig(head, dtype, cached, None, **asked, **form)
        found, _ = platform.get_valid_backends(capability, wanted, num_heads=16)
        if not found:
            return ""
        first = found[0]
        backend = first.backend if hasattr(first, "backend") else first[0]
        return str(backend.name)

    return select


def _compressed(cache: str) -> str:
    """Return the backend of DeepSeek-V4's attention, if it takes the GPU and the cache."""
    import torch
    from vllm.models.deepseek_v4 import attention
    from vllm.platforms import current_platform

    _pretend_model(512, 512)
    if current_platform.is_rocm():
        from vllm.models.deepseek_v4.amd import rocm

        kind = rocm.DeepseekV4ROCMAiterMLAAttention
        return _named(kind) if _indexes() else ""
    from vllm.config import get_current_vllm_config
    from vllm.models.deepseek_v4.nvidia import model

    kind = model._select_dsv4_attn_cls(get_current_vllm_config())
    layout = kind.use_fp8_ds_mla_layout
    form, _ = attention._resolve_dsv4_kv_cache_dtype(layout, cache, None)
    capability = current_platform.get_device_capability()
    reasons = kind.backend_cls.supports_combination(
        512, torch.bfloat16, form, None, True, True, True, False, capability
    )
    takes = kind.backend_cls.supports_compute_capability(capability) and not reasons
    return _named(kind) if takes else ""


def _named(kind: Any) -> str:
    return str(kind.backend_cls.get_name())


def _blocks(cache: str) -> str:
    from vllm.models.minimax_m3.common import sparse_attention

    backend, _ = sparse_attention.select_main_backend_and_impl_cls(
        topk_blocks=16, kv_cache_dtype=cache, num_kv_heads=1
    )
    return str(backend.get_name())


def _state() -> str:
    """Return how recurrent states are kept, if every class of theirs takes the GPU."""
    from vllm.platforms import current_platform
    from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum

    capability = current_platform.get_device_capability()
    kinds = (kind for kind in MambaAttentionBackendEnum if kind.value)
    takes = all(kind.get_class().supports_compute_capability(capability) for kind in kinds)
    return "STATE" if takes else ""


def _indexes() -> bool:
    """Return whether the indexer runs: on AMD with AITER, which is on request, or on some GPUs.

    The condition is that of ``SparseAttnIndexer.forward_hip``, which is read and not called.
    """
    from vllm.platforms import current_platform

    if not current_platform.is_rocm():
        return True
    from vllm import _aiter_ops
    from vllm.platforms import rocm

    _aiter_ops.IS_AITER_FOUND, found = True, _aiter_ops.IS_AITER_FOUND
    supported = (
        _aiter_ops.is_aiter_found_and_supported()
        or _aiter_ops.is_aiter_found_and_supported_on_rdna4()
    )
    _aiter_ops.IS_AITER_FOUND = found
    return bool(supported or rocm.on_gfx11() or rocm.on_gfx950())


def _pretend_nvidia() -> Any:
    _pretend_packages()
    checker.pretend_gpus()
    _pretend_builds()
    _pretend_model(128, 0)
    import vllm.models.deepseek_v4.nvidia.model
    import vllm.models.minimax_m3.common.sparse_attention  # noqa: F401
    from vllm.platforms import current_platform
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    for backend in AttentionBackendEnum:
        # Names without a class; those of other vendors do not load here.
        with contextlib.suppress(Exception):
            if backend.name.startswith(("FLASH", "TRITON", "CUTLASS", "FLEX")):
                backend.get_class()
    return current_platform


def _pretend_amd(architecture: str) -> Any:
    _pretend_packages("amdsmi", "vllm._rocm_C")
    import torch

    device = types.SimpleNamespace(gcnArchName=architecture, multi_processor_count=304)
    torch.cuda.get_device_properties = lambda *_, **__: device
    for name in ("vllm._C_stable_libtorch", "vllm._C"):
        sys.modules[name] = checker._Extension(name)
    checker._answer_for_missing_operations()
    from vllm import platforms
    from vllm.platforms import rocm
    from vllm.platforms.interface import DeviceCapability

    capability = DeviceCapability(*rocm._capability_from_gcn_arch(architecture))
    answers = {"get_device_capability": classmethod(lambda _, device_id=0: capability)}  # noqa: ARG005
    platforms._current_platform = type("PretendedRocm", (rocm.RocmPlatform,), answers)()
    from vllm.triton_utils import tl

    for name in ("float16", "bfloat16"):  # Triton is not here
        setattr(tl, name, getattr(tl, name, None))
    _pretend_model(128, 0)
    return platforms._current_platform


PACKAGES = ("flashinfer", "torchvision")


class _Package(checker._Extension):  # type: ignore[misc]
    """A package whose names are classes where they are written so."""

    def __getattr__(self, name: str) -> Any:
        return type(name, (), {}) if name[:1].isupper() else super().__getattr__(name)


def _pretend_packages(*more: str) -> None:
    """Let packages be imported that are not here, and whatever is below them."""

    class Finder:
        def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> Any:
            package, _, _ = name.partition(".")
            if package not in PACKAGES and not {package, name} & set(more):
                return None
            return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

        def create_module(self, spec: Any) -> Any:
            return _Package(spec.name)

        def exec_module(self, _module: Any) -> None:
            pass

    sys.meta_path.insert(0, Finder())


def _pretend_builds() -> None:
    """Say that what a CUDA build compiles is there."""
    import torch

    properties = types.SimpleNamespace(multi_processor_count=132, name="pretended")
    torch.cuda.get_device_properties = lambda *_, **__: properties
    real = torch.empty

    def empty(*size: Any, **named: Any) -> Any:
        on_gpu = str(named.get("device", "")).startswith("cuda")
        return real(*size, **(named | {"device": "meta"} if on_gpu else named))

    torch.empty = empty  # a workspace that is made when a backend is imported
    for name in ("vllm.vllm_flash_attn", "vllm.vllm_flash_attn.flash_attn_interface"):
        sys.modules.pop(name, None)
    for name in ("_vllm_fa2_C", "_vllm_fa3_C"):
        sys.modules[f"vllm.vllm_flash_attn.{name}"] = checker._Extension(name)
    interface = "vllm.third_party.flashmla.flash_mla_interface"
    for name in ("vllm._flashmla_C", "vllm._flashmla_extension_C", interface):
        sys.modules[name] = _Package(name)
    from vllm.utils import flashinfer
    from vllm.vllm_flash_attn import flash_attn_interface

    for version in (2, 3, 4):
        setattr(flash_attn_interface, f"FA{version}_AVAILABLE", True)
    for name in _answered(flashinfer):
        setattr(flashinfer, name, lambda *_, **__: True)


def _answered(flashinfer: Any) -> list[str]:
    """Return the functions that look for a part of FlashInfer, which an image brings."""
    return [name for name in vars(flashinfer) if name.startswith("has_")]


class _Anything(types.SimpleNamespace):
    """A configuration that states what it is told, and nothing else."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


def _pretend_model(head: int, selected: int) -> None:
    """Make the configuration that backends look into that of a model with heads of this width."""
    from vllm.config import vllm as current

    rope = {512: 0, 576: 64, 288: 32, 320: 64}.get(head, 64)
    text = types.SimpleNamespace(
        qk_nope_head_dim=128 if rope else 256,
        qk_rope_head_dim=rope,
        kv_lora_rank=head - rope,
        v_head_dim=128,
        **({"index_topk": selected} if selected else {}),
    )
    model = _Anything(hf_text_config=text, hf_config=text, get_num_attention_heads=lambda _: 16)
    parallel = _Anything(
        decode_context_parallel_size=1, prefill_context_parallel_size=1, tensor_parallel_size=8
    )
    current._current_vllm_config = _Anything(
        model_config=model, parallel_config=parallel, attention_config=_Anything()
    )


PREDICTING = (
    ("DeepseekV3ForCausalLM", "deepseek_v3"),
    ("DeepseekV32ForCausalLM", "deepseek_v32"),
    ("Glm4MoeForCausalLM", "glm4_moe"),
    ("GlmMoeDsaForCausalLM", "glm_moe_dsa"),
    ("Qwen3NextForCausalLM", "qwen3_next"),
    ("Qwen3_5ForCausalLM", "qwen3_5_text"),
    ("Qwen3_5ForConditionalGeneration", "qwen3_5"),
    ("Qwen3_5MoeForCausalLM", "qwen3_5_moe_text"),
    ("Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe"),
)
"""Models with layers for multi-token prediction, and their model types."""


def _drafter(architecture: str, model_type: str) -> dict[str, Any]:
    """Return the class that drafts for a model, and whether it does beside pipeline stages.

    It says so by ``SupportsPP``, unless it states that it has no embedding of its own: the last
    stage, which drafts, has none to lend (``spec_decode/eagle/utils.py:maybe_share_target_embed``).
    """
    from transformers import PretrainedConfig
    from vllm.config.speculative import SpeculativeConfig
    from vllm.model_executor.models import ModelRegistry
    from vllm.model_executor.models.interfaces import supports_pp

    config = PretrainedConfig(architectures=[architecture], num_nextn_predict_layers=1)
    config.model_type = model_type
    (name,) = SpeculativeConfig.hf_config_override(config).architectures
    kind = ModelRegistry.models[name].load_model_cls()
    lends = getattr(kind, "has_own_embed_tokens", None) is False
    return {"model": architecture, "class": name, "stages": supports_pp(kind) and not lends}


def _uncut_tokens() -> int:
    """Return the tokens of the longest input of Gemma 4 that is never cut: a batch must hold it.

    Attention among the tokens of an image goes both ways, so the platform forbids chunks of it
    (``check_and_update_config``), and a smaller batch is refused
    (``encoder_cache_manager.py:compute_mm_encoder_budget``).
    """
    for part in ("processing", "image_processing", "video_processing", "feature_extraction"):
        name = f"transformers.models.gemma4.{part}_gemma4"
        sys.modules[name] = _Package(name)
    from vllm.model_executor.models import gemma4_mm

    vision = types.SimpleNamespace(default_output_length=280)
    media = types.SimpleNamespace(limit_per_prompt={})
    context = types.SimpleNamespace(
        get_merged_mm_kwargs=lambda _: {},
        model_config=types.SimpleNamespace(get_multimodal_config=lambda: media),
    )
    info = types.SimpleNamespace(
        get_hf_config=lambda: types.SimpleNamespace(vision_config=vision),
        has_audio=lambda: False,  # 750 tokens at most, of a processor that is not here
        ctx=context,
    )
    tokens = gemma4_mm.Gemma4ProcessingInfo.get_mm_max_tokens_per_item(info, 0, {})
    return int(max(tokens.values()))


def _schemes() -> Iterator[dict[str, Any]]:
    """Yield what ``kv_cache_scheme`` of a checkpoint of llm-compressor may say."""
    yield {}
    kinds = itertools.product(("float", "int"), (8, 4), ("tensor", "attn_head", "channel"))
    for (kind, bits, strategy), symmetric in itertools.product(kinds, (True, False)):
        yield {"type": kind, "num_bits": bits, "strategy": strategy, "symmetric": symmetric}


def _scheme(scheme: dict[str, Any]) -> dict[str, Any]:
    """Return a scheme, and whether the engine loads it."""
    from vllm.model_executor.layers.quantization.compressed_tensors import compressed_tensors

    try:
        compressed_tensors.CompressedTensorsKVCacheMethod.validate_kv_cache_scheme(scheme)
    except (NotImplementedError, ValueError):
        return {"scheme": scheme, "loads": False}
    return {"scheme": scheme, "loads": True}


REFINING = re.compile(r"\bFp8MoEMethod\(")
"""The class that refines the grid of scales of FP8 experts, where one is made."""


def _refines() -> list[str]:
    """Return the methods of quantization that refine the grid of scales of FP8 experts."""
    from vllm.model_executor.layers import quantization

    found = []
    for method in quantization.QUANTIZATION_METHODS:
        config = quantization.get_quantization_config(method)
        classes = (each for each in config.__mro__ if each.__module__.startswith("vllm."))
        if any(REFINING.search(inspect.getsource(each)) for each in classes):
            found.append(method)
    return sorted(found)


def _read() -> Iterator[tuple[str, str]]:
    from vllm.utils import flashinfer

    found = [("vllm.utils.flashinfer", name) for name in _answered(flashinfer)]
    for module, name in (*found, *READ):
        yield f"{module}:{name}", _digest(module, name)


def _digest(module: str, name: str) -> str:
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return hashlib.sha256(inspect.getsource(found).encode()).hexdigest()[:16]


if __name__ == "__main__":
    main()
