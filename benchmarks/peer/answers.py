"""Answers questions with AISimulate: JSON lines in, JSON lines out.

Runs in the peer's environment and imports nothing of ours:

    build/aisimulate/bin/python benchmarks/peer/answers.py < questions.jsonl > answers.jsonl
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from aisimulate.legacy_cli.api import cli_estimate


def answered(question: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the peer's figures, in tokens per second and seconds, or the words of its refusal."""
    model = _saved(question["config"], folder)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            found = cli_estimate(model, **question["arguments"])
    except Exception as error:  # noqa: BLE001 - whatever it raises is its answer
        said = f"{type(error).__name__}: {error}".replace(f" '{model}'", "")
        return {"id": question["id"], "refused": said}
    return {
        "id": question["id"],
        "fits": True,
        "beyondCache": found.kv_cache_warning is not None,
        "version": found.backend_version,
        "performance": {
            "outputTokensPerSecond": found.seq_per_second * found.osl,
            "tpotSeconds": found.tpot / 1000,
            "ttftSeconds": found.ttft / 1000,
        },
    }


def _saved(config: dict[str, Any], folder: Path) -> str:
    """Return a folder with the config, the same one for the same config: it is read once."""
    text = json.dumps(config, sort_keys=True)
    place = folder / hashlib.sha256(text.encode()).hexdigest()[:16]
    place.mkdir(exist_ok=True)
    (place / "config.json").write_text(text, encoding="utf-8")
    return str(place)


def main() -> None:
    """Answer each line of the standard input as soon as it is worked out."""
    with tempfile.TemporaryDirectory() as folder:
        for line in sys.stdin:
            print(json.dumps(answered(json.loads(line), Path(folder))), flush=True)


if __name__ == "__main__":
    main()
