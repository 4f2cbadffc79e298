"""A plugin of the engine in the tests' image: each rank says what it holds, which this build of
vLLM does not log.

Loaded by vLLM itself (entry point `vllm.general_plugins`) in every process. It counts, it changes
nothing.
"""

from __future__ import annotations

import importlib
import multiprocessing
from typing import Any


def register() -> None:
    """Let the loader report the weights, and the worker its blocks; the server's own process has
    neither.
    """
    if multiprocessing.parent_process() is None:
        return
    loader: Any = importlib.import_module("vllm.model_executor.model_loader.base_loader")
    process = loader.process_weights_after_loading

    def report_weights(model: Any, *rest: Any) -> Any:
        held = sum(weight.numel() * weight.element_size() for weight in model.parameters())
        print(f"rank {_rank()} holds {held} bytes of weights", flush=True)  # noqa: T201 - this is the report
        _watch_blocks()
        return process(model, *rest)

    loader.process_weights_after_loading = report_weights


def _watch_blocks() -> None:
    worker: Any = importlib.import_module("vllm.v1.worker.cpu_worker").CPUWorker
    initialize = worker.initialize_from_config

    def report_blocks(self: Any, settings: Any) -> Any:
        print(f"rank {_rank()} keeps {settings.num_blocks} blocks of K/V", flush=True)  # noqa: T201 - this is the report
        return initialize(self, settings)

    worker.initialize_from_config = report_blocks


def _rank() -> int:
    return int(importlib.import_module("torch").distributed.get_rank())
