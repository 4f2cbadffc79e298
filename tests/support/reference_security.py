"""What has been tried against the operator: the report, from tests/data/security.yaml."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

TRIED: Final[dict[str, list[dict[str, Any]]]] = yaml.safe_load(
    (Path(__file__).parents[1] / "data" / "security.yaml").read_text()
)
HEADINGS: Final = {
    "boundary": "The boundary, by subject",
    "findings": "Findings",
    "threats": "Threats",
}


def lines() -> Iterator[str]:
    """Yield the lines of ``docs/reference/security-report.md``."""
    yield (
        "A review attacked the operator on a real API server, as a tenant with the rights of the "
        "role `edit` in one namespace (S1 to S17), and held it against a list of threats (T1 to "
        "T24). [Security](../../SECURITY.md) is the page to read first. Tests are named below "
        "`tests/`."
    )
    yield ""
    for part, heading in HEADINGS.items():
        yield from (f"## {heading}", "")
        for row in TRIED[part]:
            yield from _row(row)


def _row(row: dict[str, Any]) -> Iterator[str]:
    name = f"{row['id']}: {row['about']}" if "id" in row else row["about"]
    yield from (f"- **{name}.** {_sentence(row['against'])}",)
    if "remains" in row:
        yield f"  *What remains:* {_sentence(row['remains'])}"
    if "tests" in row:
        yield from ("", "  ```text", *(f"  {test}" for test in row["tests"]), "  ```", "")


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:].rstrip(".") + "."
