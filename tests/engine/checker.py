"""Asks vLLM itself about an argument list. Runs in the engine's environment: torch, vLLM and the
standard library.

    python checker.py          one JSON job per line in, one JSON answer per line out

The engine is imported once, and each job is answered by a fork: about a second instead of ten.
Every stage runs vLLM's own code, the first that fails ends the job:

    parse    the parser of `vllm serve`: unknown options, types, choices
    config   `create_engine_config`: heads, experts, context, nodes, batch limits, quantization, speculation
    launch   what a starting process asserts: ranks per node, the layers of every stage, the GPUs that it needs
    shapes   the real model class on torch's "meta" device with a process group that talks to nobody: divisibility of every
             layer, and the bytes of weights and K/V cache of one rank (only where the job names a
             rank)

There is no GPU, so one is pretended: the platform's questions (how many, how much memory, which
capability) are answered from the job, and operations of the missing CUDA extension count as there
when a layer is built. What it cannot see: limits of kernels, what loading repacks, anything that
needs weights or a tokenizer.
"""

import contextlib
import io
import json
import os
import signal
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Answer = dict[str, Any]

PREFIX = "@@ANSWER "
CHECK_SECONDS = 240


class Refused(Exception):  # noqa: N818 - the engine refuses, nothing is in error
    """The engine does not take the arguments."""

    def __init__(self, stage: str, message: str) -> None:
        self.stage, self.message = stage, " ".join(message.split())
        super().__init__(message)


class PretendedGpu:
    """What the platform answers about the GPUs of a node; a job sets it in its own process."""

    count = 8
    memory_bytes = 80 * 2**30
    capability = (9, 0)
    builds_layers = False


def main() -> None:
    pretend_gpus()
    import vllm.v1.executor.multiproc_executor  # noqa: F401 - what every check needs, loaded once

    parser_of_serve()
    pretend_tokenizers()
    print(f"{PREFIX}ready", flush=True)
    for line in sys.stdin:
        print(f"{PREFIX}{answered_by_a_fork(json.loads(line), checked)}", flush=True)


def answered_by_a_fork(
    job: Mapping[str, Any], answered: Callable[[Mapping[str, Any]], Answer]
) -> str:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        signal.alarm(CHECK_SECONDS)
        with os.fdopen(writing, "w") as answers:
            answers.write(json.dumps(answered(job)))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answers:
        text = answers.read()
    os.waitpid(child, 0)
    return text or json.dumps(
        {"accepted": False, "stage": "checker", "message": "the check ended without an answer"}
    )


def checked(job: Mapping[str, Any]) -> Answer:
    if job.get("lists"):
        return listed()
    os.environ.update(job["environment"])
    PretendedGpu.count, PretendedGpu.memory_bytes = job["gpus"], job["gpuBytes"]
    PretendedGpu.capability = tuple(job["capability"])
    try:
        options, config = configured(job["arguments"], job["model"], job["draft"])
        resolved = launched(options, config)
        return {"accepted": True, "resolved": resolved} | (
            built(config, job["rank"]) if job["rank"] is not None else {}
        )
    except Refused as refusal:
        return {"accepted": False, "stage": refusal.stage, "message": refusal.message}


@contextlib.contextmanager
def refusing(stage: str) -> Iterator[None]:
    """Turn whatever vLLM raises into a refusal in its own words."""
    try:
        yield
    except Refused:
        raise
    except (Exception, SystemExit) as error:
        raise Refused(stage, said(error)) from error


def said(error: BaseException) -> str:
    errors = getattr(error, "errors", None)
    if not callable(errors):
        return f"{type(error).__name__}: {error}"
    return "; ".join(str(item["msg"]) for item in errors())


def parser_of_serve() -> tuple[Any, Callable[[Any], None]]:
    try:
        from vllm.entrypoints.common.cli_args import (
            make_arg_parser,
            validate_parsed_serve_args,
        )  # 0.33
    except ImportError:
        from vllm.entrypoints.launchers.cli_args import (
            make_arg_parser,
            validate_parsed_serve_args,
        )  # 0.32
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    return make_arg_parser(FlexibleArgumentParser(prog="vllm serve")), validate_parsed_serve_args


def listed() -> Answer:
    """Return what this version knows by name: options, what optional ones wrap, parsers of tool
    calls and of reasoning, architectures.
    """
    from vllm.model_executor.models.registry import ModelRegistry
    from vllm.reasoning import ReasoningParserManager
    from vllm.tool_parsers import ToolParserManager

    parser, _ = parser_of_serve()
    flags = [
        [flag for flag in action.option_strings if flag.startswith("--")]
        for action in parser._actions
    ]
    return {
        "options": sorted(
            found[0].removeprefix("--").replace("_", "-")
            for found in flags
            if found and found[0] != "--help"
        ),
        "wrapped": dict(filter(None, map(wrapped, parser._actions))),
        "tool-call-parser": sorted(ToolParserManager.list_registered()),
        "reasoning-parser": sorted(ReasoningParserManager.list_registered()),
        "architectures": sorted(ModelRegistry.get_supported_archs()),
    }


def wrapped(action: Any) -> tuple[str, str] | None:
    """Return an option with the conversion that the parser's ``_optional_type`` wraps."""
    if getattr(action.type, "__name__", "") != "_optional_type":
        return None
    (inner,) = (cell.cell_contents for cell in action.type.__closure__)
    flag = next(flag for flag in action.option_strings if flag.startswith("--"))
    return flag.removeprefix("--").replace("_", "-"), inner.__name__


def parsed(arguments: Sequence[str]) -> Any:
    parser, validate = parser_of_serve()
    output = io.StringIO()
    try:
        with contextlib.redirect_stderr(output), contextlib.redirect_stdout(output):
            options = parser.parse_args(list(arguments))
            options.model = options.model_tag or options.model
            validate(options)
    except SystemExit:
        raise Refused("parse", output.getvalue().rpartition("error:")[2]) from None
    return options


def configured(arguments: Sequence[str], folder: str, draft: str | None) -> tuple[Any, Any]:
    """Return the options and the engine's configuration; the folders hold the config.json of the
    models that are named.
    """
    with refusing("parse"):
        options = parsed(arguments)
    options.model, options.tokenizer, options.revision = folder, None, None
    if draft is not None:
        options.speculative_config = options.speculative_config | {"model": draft}
    with refusing("config"):
        from vllm import AsyncEngineArgs
        from vllm.usage.usage_lib import UsageContext

        made = AsyncEngineArgs.from_cli_args(options)
        return options, made.create_engine_config(
            usage_context=UsageContext.OPENAI_API_SERVER, headless=options.headless
        )


def adapters_of(options: Any) -> list[list[str]]:
    """Return the name and the folder of every adapter that the server would load before it
    answers.
    """
    return [[module.name, module.path] for module in options.lora_modules or ()]


def launched(options: Any, config: Any) -> Answer:
    """Return what was resolved, after the assertions of a starting process
    (vllm/v1/executor/multiproc_executor.py).
    """
    parallel, model = config.parallel_config, config.model_config
    with refusing("launch"):
        nodes = parallel.nnodes_within_dp
        if parallel.world_size % nodes:
            raise Refused("launch", f"{parallel.world_size} ranks over {nodes} nodes")
        if (
            parallel.local_world_size * max(1, parallel.data_parallel_size_local or 1)
            > PretendedGpu.count
        ):
            raise Refused(
                "launch",
                f"{parallel.local_world_size} ranks on a node of {PretendedGpu.count} GPUs",
            )
        return {
            "architecture": model.architecture,
            "quantization": model.quantization,
            "dtype": str(model.dtype).removeprefix("torch."),
            "tensor": parallel.tensor_parallel_size,
            "pipeline": parallel.pipeline_parallel_size,
            "attentionData": parallel.data_parallel_size,
            "attentionDataOfPod": parallel.data_parallel_size_local,
            "attentionDataPort": parallel.data_parallel_rpc_port,
            "context": parallel.decode_context_parallel_size,
            "expert": parallel.enable_expert_parallel,
            "nodes": parallel.nnodes,
            "nodeRank": parallel.node_rank,
            "ranksPerNode": parallel.local_world_size,
            "stages": stages(model, parallel.pipeline_parallel_size),
            "maxModelLen": model.max_model_len,
            "maxSequences": config.scheduler_config.max_num_seqs,
            "maxBatchedTokens": config.scheduler_config.max_num_batched_tokens,
            "memoryUtilization": config.cache_config.gpu_memory_utilization,
            "servedName": model.served_model_name[0]
            if isinstance(model.served_model_name, list)
            else model.served_model_name,
            "cacheDtype": config.cache_config.cache_dtype,
            "loadFormat": str(
                getattr(config.load_config.load_format, "value", config.load_config.load_format)
            ),
            "adapters": adapters_of(options),
            "adapterSlots": config.lora_config.max_loras if config.lora_config else 0,
            "adapterRank": config.lora_config.max_lora_rank if config.lora_config else 0,
            "draftMethod": config.speculative_config.method if config.speculative_config else "",
            "draftTensor": drafting.draft_parallel_config.tensor_parallel_size
            if (drafting := drafting_of(config))
            else 0,
            "draftTokens": config.speculative_config.num_speculative_tokens
            if config.speculative_config
            else 0,
        }


def drafting_of(config: Any) -> Any:
    """Return the engine's configuration of what drafts with weights of its own, None without it."""
    speculation = config.speculative_config
    own = ("draft_model", "eagle3", "mtp")
    return speculation if speculation and speculation.method in own else None


def stages(model: Any, pipeline: int) -> list[list[int]]:
    from vllm.distributed.utils import get_pp_indices

    layers = model.get_total_num_hidden_layers()
    found = [list(get_pp_indices(layers, stage, pipeline)) for stage in range(pipeline)]
    if empty := [stage for stage, (first, end) in enumerate(found) if first >= end]:
        raise Refused("launch", f"stages {empty} have no layer")
    return found


def built(config: Any, rank: int) -> Answer:
    """Return the bytes of one rank: its part of the model, made by the real class."""
    with refusing("shapes"):
        from vllm.config import CompilationMode, set_current_vllm_config

        config.compilation_config.mode = CompilationMode.NONE  # nothing is run
        PretendedGpu.builds_layers = True
        pretend_streams()
        with set_current_vllm_config(config, check_compile=False):
            pretend_peers(config, rank)
            model = empty_model(config)
            weights = weight_bytes(model)  # before adapters, which wrap what they find
            found = {"weightsBytes": weights, "draftBytes": draft_bytes(config)}
            return found | {
                "kvBytesPerToken": cache_bytes(config),
                "adapterBytes": adapter_bytes(model, config),
            }


def empty_model(config: Any) -> Any:
    import torch
    import vllm.model_executor.layers.fused_moe.expert_map_manager as maps
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype

    for kind in vars(maps).values():  # log lines that read the values of a tensor
        if isinstance(kind, type) and hasattr(kind, "get_compressed_map_string"):
            kind.get_compressed_map_string = lambda *_, **__: ""
    with set_default_torch_dtype(config.model_config.dtype), torch.device("meta"):
        return initialize_model(vllm_config=config)


LENT = ("embed_tokens", "lm_head", "head")
"""Parts of MTP layers that the engine gives back when weights are loaded, for those of the model
(v1/worker/gpu/spec_decode/eagle/utils.py:load_eagle_model).
"""


def draft_bytes(config: Any) -> int:
    """Return the bytes of what drafts, 0 without it."""
    speculation = drafting_of(config)
    if speculation is None:
        return 0
    draft = empty_draft(config)
    if speculation.method != "mtp":
        return weight_bytes(draft)
    lent = {name for name, _ in draft.named_modules() if name.split(".")[-1] in LENT}
    return weight_bytes(draft) - sum(weight_bytes(draft.get_submodule(name)) for name in lent)


def empty_draft(config: Any) -> Any:
    """Return the draft model or head as the engine makes it
    (v1/worker/gpu/spec_decode/standalone_ar/speculator.py:load_draft_model, eagle/utils.py).
    """
    import torch
    from vllm.config import replace
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype

    speculation = config.speculative_config
    if not speculation.uses_draft_model():
        with set_default_torch_dtype(config.model_config.dtype), torch.device("meta"):
            return initialize_model(vllm_config=config, model_config=speculation.draft_model_config)
    parallel = replace(speculation.draft_parallel_config, rank=config.parallel_config.rank)
    own = replace(
        config,
        model_config=speculation.draft_model_config,
        quant_config=None,
        parallel_config=parallel,
    )
    with set_default_torch_dtype(own.model_config.dtype), torch.device("meta"):
        return initialize_model(vllm_config=own, prefix="draft_model")


CACHE_SCALES = ("q_scale", "k_scale", "v_scale", "prob_scale")


def weight_bytes(model: Any) -> int:
    """Return the bytes of all parameters but the scales of the K/V cache: placeholders that loading
    takes away.
    """
    named = model.named_parameters()
    return sum(
        weight.numel() * weight.element_size()
        for name, weight in named
        if not name.endswith(CACHE_SCALES)
    )


SLOTS = ("lora_a_stacked", "lora_b_stacked")
SLOTS_OF_EXPERTS = (
    "w13_lora_a_stacked",
    "w13_lora_b_stacked",
    "w2_lora_a_stacked",
    "w2_lora_b_stacked",
)


def adapter_bytes(model: Any, config: Any) -> int:
    """Return the bytes of the slots that the engine's own manager makes beside the layers of this
    rank; 0 without adapters.
    """
    if config.lora_config is None:
        return 0
    import torch
    from vllm.lora import model_manager
    from vllm.lora.layers import BaseLayerWithLoRA

    model_manager.get_punica_wrapper = lambda *_, **__: (
        object()
    )  # tables of indices for kernels: none is run
    limits, meta = config.scheduler_config, torch.device("meta")
    sizes = (
        limits.max_num_seqs,
        limits.max_num_batched_tokens,
        config.model_config.get_vocab_size(),
    )
    pretend_kernels(model)
    with meta:
        model_manager.LoRAModelManager(model, *sizes, config.lora_config, meta, config)
    wrapped = [layer for layer in model.modules() if isinstance(layer, BaseLayerWithLoRA)]
    return sum(
        tensor.numel() * tensor.element_size() for layer in wrapped for tensor in slots_of(layer)
    )


def pretend_kernels(model: Any) -> None:
    """Give experts the kernel that is chosen for them after loading: adapters ask it only whether
    it takes them.
    """
    from vllm.lora.layers import fused_moe
    from vllm.model_executor.layers.fused_moe.experts.lora_experts_mixin import LoRAExpertsMixin
    from vllm.model_executor.layers.fused_moe.modular_kernel import FusedMoEKernelModularImpl

    impl, experts = object.__new__(FusedMoEKernelModularImpl), LoRAExpertsMixin()
    kernel = types.SimpleNamespace(
        impl=impl,
        is_monolithic=False,
        fused_experts=experts,
        prepare_finalize=None,
        supports_lora=lambda: True,
    )
    fused_moe.FusedMoEModularMethod = lambda method, _: method
    for layer in model.modules():
        method = getattr(layer, "quant_method", None)
        if method is not None and hasattr(method, "moe_kernel"):
            method.moe_kernel, method.moe_quant_config = kernel, object()


def slots_of(layer: Any) -> Iterator[Any]:
    for name in SLOTS_OF_EXPERTS if hasattr(layer, SLOTS_OF_EXPERTS[0]) else SLOTS:
        value = getattr(layer, name)
        yield from value if isinstance(value, tuple | list) else (value,)


def cache_bytes(config: Any) -> float:
    """Return the bytes of K/V that one token takes in all layers of this rank."""
    from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase

    layers = config.compilation_config.static_forward_context.values()
    specs = [
        layer.get_kv_cache_spec(config) for layer in layers if isinstance(layer, AttentionLayerBase)
    ]
    return float(sum(spec.page_size_bytes / spec.block_size for spec in specs if spec is not None))


def pretend_peers(config: Any, rank: int) -> None:
    """Join a process group of all ranks that exists in this process alone."""
    import torch.distributed as dist
    import vllm.distributed.parallel_state as state
    from torch.testing._internal.distributed.fake_pg import FakeStore

    parallel = config.parallel_config
    world = parallel.world_size * parallel.data_parallel_size
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    make_group, make_model_group = dist.new_group, state.init_model_parallel_group

    def group_of_nobody(
        ranks: Any = None, timeout: Any = None, backend: Any = None, **more: Any
    ) -> Any:
        del timeout, backend
        return make_group(ranks, backend="fake", **more)

    dist.new_group = group_of_nobody
    alone = {"use_message_queue_broadcaster": False, "use_device_communicator": False}
    state.init_model_parallel_group = lambda *given, **named: make_model_group(
        *given, **(named | alone)
    )
    state._node_count = lambda _: max(1, parallel.nnodes)
    parallel.rank = rank
    data, parallel.data_parallel_size = (
        parallel.data_parallel_size,
        1,
    )  # one flat group stands for the groups of all
    state.init_distributed_environment(
        world_size=world, rank=rank, local_rank=0, distributed_init_method="fake://", backend="fake"
    )
    parallel.data_parallel_size = data
    state.initialize_model_parallel(
        parallel.tensor_parallel_size,
        parallel.pipeline_parallel_size,
        parallel.prefill_context_parallel_size,
        parallel.decode_context_parallel_size,
        backend="fake",
    )


def pretend_gpus() -> None:
    """Make vLLM believe in NVIDIA GPUs without touching a driver."""
    for name in (
        "vllm._C_stable_libtorch",
        "vllm._C",
        "vllm.vllm_flash_attn",
        "vllm.vllm_flash_attn.flash_attn_interface",
    ):
        sys.modules[name] = _Extension(
            name
        )  # those of the CPU build want instructions that not every machine has
    from vllm import platforms, triton_utils

    # Kernels beside the connector of pairs read the numbers of theirs while they are imported.
    triton_utils.triton.Config = lambda settings, **numbers: types.SimpleNamespace(
        kwargs=settings, **numbers
    )
    platforms._current_platform = _platform()()
    _answer_for_missing_operations()
    _keep_no_model_cache()


def pretend_tokenizers() -> None:
    """Let the configuration of reasoning be made without a tokenizer: which tokens begin and end it
    no check asks.
    """
    from vllm.config.reasoning import ReasoningConfig

    def nothing(config: Any, _model: Any) -> None:
        config._reasoning_start_token_ids = config._reasoning_end_token_ids = [0]

    ReasoningConfig.initialize_token_ids = nothing


class _Extension(types.ModuleType):
    """Stands for a compiled part that is imported and never called."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


def _platform() -> type:
    from vllm.platforms import cuda
    from vllm.platforms.interface import DeviceCapability

    def number(capability: Any) -> int:
        return int(
            capability if isinstance(capability, int) else capability[0] * 10 + capability[1]
        )

    def own() -> int:
        return number(PretendedGpu.capability)

    answers: dict[str, Callable[..., Any]] = {
        "get_device_capability": lambda _, device_id=0: DeviceCapability(  # noqa: ARG005
            *PretendedGpu.capability
        ),
        "has_device_capability": lambda _, capability, device_id=0: (  # noqa: ARG005
            own() >= number(capability)
        ),
        "is_device_capability": lambda _, capability, device_id=0: (  # noqa: ARG005
            own() == number(capability)
        ),
        "get_device_name": lambda _, device_id=0: "pretended",  # noqa: ARG005
        "get_device_uuid": lambda _, device_id=0: f"GPU-{device_id}",
        "get_device_total_memory": lambda _, device_id=0: PretendedGpu.memory_bytes,  # noqa: ARG005
        "get_current_memory_usage": lambda _, device=None: 0,  # noqa: ARG005
        "is_fully_connected": lambda *_: True,
        "device_count": lambda _: PretendedGpu.count,
        "num_compute_units": lambda _, device_id=0: 132,  # noqa: ARG005 - of an H100; asked for by launch heuristics alone
        "get_cuda_runtime_major": lambda _: 13,
        "is_integrated_gpu": lambda _, device_id=0: False,  # noqa: ARG005
        "get_all_device_numa_nodes": lambda _: None,
        "set_device": lambda *_: None,
        "check_if_supports_dtype": lambda *_: None,
        "import_kernels": lambda _: None,
        "log_warnings": lambda _: None,
        "is_pin_memory_available": lambda _: False,
    }
    return type(
        "PretendedCuda",
        (cuda.NonNvmlCudaPlatform,),
        {name: classmethod(answer) for name, answer in answers.items()},
    )


def _answer_for_missing_operations() -> None:
    """A stock GPU image supports what it asks itself about; a layer may keep an operation that is
    missing here.
    """
    from torch import _ops

    real = _ops._OpNamespace.__getattr__

    def answer(self: Any, name: str) -> Any:
        try:
            return real(self, name)
        except AttributeError:
            if "support" in name:
                return lambda *_, **__: True
            importing = sys._getframe(1).f_code.co_name == "<module>"
            if PretendedGpu.builds_layers and not name.startswith("__") and not importing:
                return lambda *_, **__: None
            raise

    _ops._OpNamespace.__getattr__ = answer


def _keep_no_model_cache() -> None:
    """Inspect model classes in this process and write nothing: vLLM would start another, without
    the pretended GPU.
    """
    from vllm.model_executor.models import registry

    def inspect(self: Any) -> Any:
        return registry._ModelInfo.from_model_cls(self.load_model_cls())

    for kind in vars(registry).values():
        if isinstance(kind, type) and "_save_modelinfo_to_cache" in vars(kind):
            kind._save_modelinfo_to_cache = lambda *_, **__: None  # type: ignore[attr-defined]  # just asked
            kind.inspect_model_cls = inspect  # type: ignore[attr-defined]  # the method beside it


def pretend_streams() -> None:
    """Layers may ask for a side stream when they are built; none is ever used."""
    import torch.cuda
    import vllm.utils.torch_utils as streams

    class Stream:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def __getattr__(self, name: str) -> Callable[..., None]:
            return lambda *_, **__: None

    streams.aux_stream = lambda *_, **__: None
    torch.cuda.Stream = torch.cuda.Event = Stream
    torch.cuda.current_stream = lambda *_, **__: Stream()


if __name__ == "__main__":
    main()
