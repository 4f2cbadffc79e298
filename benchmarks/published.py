"""Reads every published configuration of a folder and prints what came of it.

    python -m benchmarks.published ../shared/recipes/configs

The folder has one folder for each model, with its ``config.json`` and, where there is one, its
``hf_quant_config.json``.
"""

import sys
from pathlib import Path

from shardwright.errors import InputError
from shardwright.modelspec.config_json import folder_text, parse_config
from shardwright.modelspec.read import read_model


def outcome(folder: Path) -> str:
    """Return one line: the model's size and format, or each field that was refused and why."""
    text = folder_text(
        {file.name: file.read_text(encoding="utf-8") for file in folder.glob("*.json")}
    )
    try:
        model = read_model(parse_config(text or "", source=folder.name), source=folder.name)
    except InputError as error:
        return (
            f"REFUSED  {folder.name}: "
            f"{'; '.join(f'{problem.path}: {problem.sentence()}' for problem in error.problems)}"
        )
    size = (
        f"{model.parameters / 1e9:,.1f} B parameters, {model.least_bytes / 1e9:,.1f} GB, "
        f"{model.quantization or model.dtype}"
    )
    return f"read     {folder.name}: {size}{''.join(f'; {warning}' for warning in model.warnings)}"


def main() -> int:
    """Print a line for each model, then how many were refused; end with 1 where one was."""
    lines = [outcome(folder) for folder in sorted(Path(sys.argv[1]).iterdir()) if folder.is_dir()]
    refused = sum(line.startswith("REFUSED") for line in lines)
    print("\n".join(lines), f"{refused} of {len(lines)} refused", sep="\n")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
