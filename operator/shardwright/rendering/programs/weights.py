"""Downloads a model and its adapters into the cache before the engine starts: once per cache,
whoever comes first.

    weights.py MODEL REVISION FOLDER ...     (an empty revision: the newest; an empty folder: the hub's own cache)

Runs with the engine's Python and huggingface_hub. What is complete is marked, so that a restart
asks nobody and reads no byte twice; what was interrupted is continued. The lock is the kernel's: it
goes with the process that holds it.
"""  # noqa: E501

import fcntl
import hashlib
import os
import socket
import sys
from pathlib import Path

OTHER_FORMATS = [
    "*.bin",
    "*.pt",
    "*.pth",
    "*.gguf",
    "*.h5",
    "*.msgpack",
    "*.onnx",
    "original/*",
    "consolidated*",
]
"""The same weights once more, where a repository has them as safetensors."""


def fetch(model: str, revision: str, folder: str) -> None:
    """Return when the model is in the cache, whoever has put it there."""
    marks = Path(os.environ["HF_HOME"]) / "shardwright"
    marks.mkdir(parents=True, exist_ok=True)
    where = f" {folder}" if folder else ""
    name = hashlib.sha256(f"{model}@{revision}{where}".encode()).hexdigest()[:32]
    done = marks / f"{name}.complete"
    with (marks / f"{name}.lock").open("w") as lock:
        if not done.exists():
            print(f"shardwright: {model}: waiting for the lock of the cache", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        if done.exists():
            print(f"shardwright: {model} is in the cache", flush=True)
            return
        download(model, revision, folder)
        done.touch()


def download(model: str, revision: str, folder: str) -> None:
    """Fetch everything that the engine reads: safetensors where there are any, tokenizer and
    configuration.
    """
    from huggingface_hub import HfApi, snapshot_download  # noqa: PLC0415

    files = HfApi().list_repo_files(model, revision=revision or None)
    weights = [file for file in files if file.endswith(".safetensors") and "/" not in file]
    # Some of Mistral's repositories have the consolidated ones alone.
    has_safetensors = any(not file.startswith("consolidated") for file in weights)
    unwanted = OTHER_FORMATS if has_safetensors else None
    print(f"shardwright: downloading {model}", flush=True)
    snapshot_download(
        model, revision=revision or None, ignore_patterns=unwanted, local_dir=folder or None
    )


if __name__ == "__main__":
    # The engine sees this part of the cache alone, and as this user: here it is made. A pod's host
    # name is its name.
    home = Path(os.environ["HF_HOME"]).parent / "pods" / socket.gethostname() / "home"
    home.mkdir(parents=True, exist_ok=True)
    os.environ["HOME"] = str(home)
    words = sys.argv[1:]
    for first in range(0, len(words), 3):
        fetch(*words[first : first + 3])
