"""The case that the page of ``predict`` shows has the prediction that it shows."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shardwright.cli.predict import Cases, answer
from shardwright.modelspec.catalogue import find_model

PAGE = Path(__file__).parent.parent.parent / "docs" / "predict.md"
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
SHORTENED = {"...": "..."}


def _shown() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the case and the prediction of the page."""
    blocks = re.findall(r"^```json\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    case, prediction = map(json.loads, blocks)
    return case, prediction


def _config() -> Mapping[str, Any]:
    """Return the built-in config of the model that the page names."""
    entry = find_model(MODEL)
    assert entry is not None
    return entry.config


def test_the_config_that_is_shortened_is_that_of_the_model_that_is_named() -> None:
    assert f"`{MODEL}`" in PAGE.read_text()
    assert _shown()[0]["model"]["config"].items() <= {**_config(), **SHORTENED}.items()


def test_the_prediction_is_the_one_of_the_case() -> None:
    case, shown = _shown()
    whole = {**case, "model": {"config": _config()}}

    assert answer(json.dumps(whole), Cases()) == shown
