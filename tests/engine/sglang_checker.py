"""Asks SGLang itself about an argument list. Runs in the engine's environment, beside SGLang's sources.

    python sglang_checker.py SOURCES     one JSON job per line in, one JSON answer per line out

As `checker.py` does it for vLLM, with two stages of SGLang's own code: `parse`, its parser, and `config`,
`resolve_once` and `check_server_args`: what it makes of degrees, nodes, experts, formats and drafts for a model.

There is no GPU, so one is pretended, and packages that only kernels need are empty modules. What it cannot see:
whether a model class is there, divisibility of its layers, limits of kernels, anything that needs weights.
"""

import argparse
import importlib.abc
import importlib.machinery
import json
import os
import sys
import tempfile
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from checker import PREFIX, Refused, answered_by_a_fork, refusing  # type: ignore[import-not-found]

Answer = dict[str, Any]

_EMPTY = frozenset(
    {
        "IPython",
        "accelerate",
        "aiter",
        "fastsafetensors",
        "flashinfer",
        "gguf",
        "orjson",
        "petit_kernel",
        "pynvml",
        "sgl_kernel",
        "torch_memory_saver",
        "torchcodec",
        "torchvision",
        "triton",
        "triton_kernels",
    }
)
"""Packages that are not there, of which parser and configuration need nothing but their names."""

_LOADED = ("AutoImageProcessor", "AutoProcessor", "BaseImageProcessor", "ProcessorMixin")
"""What transformers makes of packages for images."""

_SMALL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "torch_dtype": "bfloat16",
    "max_position_embeddings": 64,
}

TOLD = (
    "tp_size",
    "pp_size",
    "attn_dp_size",
    "ep_size",
    "dcp_size",
    "nnodes",
    "node_rank",
    "context_length",
    "max_running_requests",
    "chunked_prefill_size",
    "mem_fraction_static",
    "kv_cache_dtype",
    "load_format",
    "served_model_name",
    "allowed_media_domains",
    "speculative_num_draft_tokens",
    "enable_metrics",
)


class _Nothing(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Thing()


class _Thing(metaclass=_Nothing):
    """Whatever an empty package is asked for."""

    def __init__(self, *_arguments: object, **_named: object) -> None: ...

    def __call__(self, *arguments: Any, **named: object) -> Any:
        decorated = len(arguments) == 1 and not named and callable(arguments[0])
        return arguments[0] if decorated else _Thing()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Thing()

    def __getitem__(self, _key: object) -> Any:
        return _Thing()


class _Module(types.ModuleType):
    __version__ = "3.7.1"  # triton's, of which torch asks the version

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (_Thing,), {})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the packages that are not there, after all that are."""

    def find_spec(self, name: str, *_further: object) -> importlib.machinery.ModuleSpec | None:
        empty = name.partition(".")[0] in _EMPTY
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if empty else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__path__ = []


def main() -> None:
    pretend(sys.argv[1])
    import_all()
    print(f"{PREFIX}ready", flush=True)
    for line in sys.stdin:
        print(f"{PREFIX}{answered_by_a_fork(json.loads(line), checked)}", flush=True)


def pretend(sources: str) -> None:
    """Make SGLang importable, and a H100 of what the machine is."""
    import torch._dynamo
    import torch._inductor.utils  # noqa: F401 - before triton is an empty module
    import transformers

    for name in _LOADED:  # before it sees packages that it would ask for their versions
        getattr(transformers, name)

    package = types.ModuleType("sglang")  # without its __init__, which imports the engine
    package.__path__ = [str(Path(sources) / "sglang")]
    sys.modules["sglang"] = package
    sys.meta_path.append(_Finder())
    from sglang.srt import runtime_context  # type: ignore[import-not-found]
    from sglang.srt.arg_groups import memory_hook  # type: ignore[import-not-found]

    no = dict.fromkeys(("is_hip", "is_npu", "is_xpu", "is_musa", "is_mps"), False)
    newer = dict.fromkeys(
        ("is_sm100", "is_sm110", "is_sm120", "is_sm100_or_sm110", "is_blackwell"), False
    )
    runtime_context._PLATFORM._install(
        **no,
        **newer,
        is_cuda=True,
        is_sm90=True,
        is_hopper_with_cuda_12_3=True,
        has_flashinfer=True,
        device_sm=90,
        device_capability=(9, 0),
    )
    memory_hook.get_device_memory_capacity = lambda *_: 80 * 1024


def import_all() -> None:
    """Import what a check needs, by one: forks would import it each."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(_SMALL))
        answer = checked(
            {
                "arguments": ["--model-path", folder],
                "environment": {},
                "model": folder,
                "draft": None,
            }
        )
    assert answer["accepted"], answer
    os.environ.clear()
    os.environ.update(before)


def parser() -> argparse.ArgumentParser:
    from sglang.srt.server_args import ServerArgs  # type: ignore[import-not-found]

    made = argparse.ArgumentParser(prog="sglang serve")
    ServerArgs.add_cli_args(made)
    return made


def checked(job: Mapping[str, Any]) -> Answer:
    if job.get("lists"):
        return {"options": [row(action) for action in parser()._actions if action.dest != "help"]}
    from sglang.srt.server_args import prepare_server_args

    os.environ.update(job["environment"])
    words = ["--device", "cuda", *job["arguments"]]
    # The folder with the model's config stands for the model's id.
    for option, folder in (
        ("--model-path", job["model"]),
        ("--speculative-draft-model-path", job["draft"]),
    ):
        if option in words and folder:
            words[words.index(option) + 1] = folder
    try:
        with refusing("parse"):
            made = prepare_server_args(words)
        with refusing("config"):
            made.resolve_once()
            made.check_server_args()
            found = made.resolved_dict()
    except Refused as refusal:
        return {"accepted": False, "stage": refusal.stage, "message": refusal.message}
    return {"accepted": True, "resolved": {name: found[name] for name in TOLD}}


def row(action: argparse.Action) -> dict[str, Any]:
    """Return an option as our tables have it."""
    found: dict[str, Any] = {"flags": list(action.option_strings), "type": _type(action)}
    if action.nargs is not None:
        found["nargs"] = action.nargs
    if action.choices is not None:
        # A set has another order in every process.
        listed = sorted(action.choices) if isinstance(action.choices, set) else list(action.choices)
        found["choices"] = listed
    return found


def _type(action: argparse.Action) -> str:
    if action.nargs == 0:
        return "bool"
    return getattr(action.type, "__name__", "str") if action.type else "str"


if __name__ == "__main__":
    main()
