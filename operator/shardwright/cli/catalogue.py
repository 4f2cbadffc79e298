"""The command ``models``: which model ids need no config of their own."""

from argparse import Namespace

from shardwright.cli.output import print_json, print_text
from shardwright.modelspec.catalogue import find_model, known_ids
from shardwright.reporting.lines import table


def list_models(arguments: Namespace) -> None:
    """Print the built-in ids that contain the searched text, with the architecture of each."""
    rows = [_row(model_id) for model_id in known_ids() if arguments.search.lower() in model_id.lower()]
    if arguments.output == "json":
        print_json(rows)
        return
    cells = [(row["id"] or "", row["architecture"] or "") for row in rows]
    for line in table(("ID", "ARCHITECTURE"), cells, width=200, indent="") if cells else ():
        print_text(line.plain())


def _row(model_id: str) -> dict[str, str | None]:
    entry = find_model(model_id)
    architectures = entry.config.get("architectures") if entry else None
    named = str(architectures[0]) if isinstance(architectures, list | tuple) and architectures else None
    source, revision = (entry.source, entry.revision) if entry else (None, None)
    return {"id": model_id, "architecture": named, "source": source, "revision": revision}
