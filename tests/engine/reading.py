"""Reads weights as vLLM does when it starts. Runs in the engine's environment, with its streamer.

    python reading.py ARGUMENT ...     the arguments of `vllm serve`; answers in one line of JSON

vLLM's own parser, configuration and loader: what it fetches to be configured by, and the tensors
that it streams. The model class is left out, and with it the GPU.
"""

import json
import sys
from pathlib import Path


def main() -> None:
    import checker  # type: ignore[import-not-found]  # beside this file, of the engine's world

    checker.pretend_gpus()
    from vllm import AsyncEngineArgs
    from vllm.model_executor.model_loader import get_model_loader

    options = checker.parsed(sys.argv[1:])
    made = AsyncEngineArgs.from_cli_args(options)
    model, load = made.create_model_config(), made.create_load_config()
    loader = get_model_loader(load)
    tensors = loader._get_weights_iterator(model.model_weights, None)
    answer = {
        "loader": type(loader).__name__,
        "weights": model.model_weights,
        "files": sorted(path.name for path in Path(model.model).iterdir()),
        "folder": model.model,
        "served": model.served_model_name,
        "layers": model.hf_config.num_hidden_layers,
        "tensors": {name: tensor.tolist() for name, tensor in tensors},
    }
    print(f"{checker.PREFIX}{json.dumps(answer)}", flush=True)


if __name__ == "__main__":
    main()
