"""Words that a reader had to decode have been replaced, in pages, in messages and in what the chart
says.
"""

import re
from pathlib import Path

import pytest

from tests.support.wrapping import AS_WRITTEN

ROOT = Path(__file__).parent.parent.parent
REPLACED = {
    "Mind": "Warnings",
    "Serve only who has a key": "Require an API key",
    "goes on on": "is moved to",
    "Groups all or none": "Gang scheduling",
    "put aside": "excluded",
    "never becomes ready costs nothing": "interrupts nothing",
    "mend the Secret": "fix the Secret",
    "heals by itself": "recovers automatically",
    "without limit": "indefinitely, or without a limit",
    "what came of it": "the result",
    "no leave to": "no permission to",
    "names of their own": "each under its name",
    "name of its own": "its own name",
    "what is wanted, as": "Inputs",
    "what is there:": "Cluster",
    "nothing is left over": "everything divides",
    "cannot stand in a header": "holds characters that a header cannot have",
    "through zero": "restarts as a whole",
    "as do 1 others": "as does one other",
}
"""What was found, and what says it now."""

# their text is part of the hash of a template: a word is not worth a RolloutPending of every model
IN_PODS = "programs"
SAID = [
    file
    for ending in ("*.py", "*.j2")
    for file in (ROOT / "operator" / "shardwright").rglob(ending)
    if IN_PODS not in file.parts
]
SHOWN = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "charts").rglob("*.yaml"),
    *(ROOT / "charts").rglob("*.tpl"),
]


@pytest.mark.parametrize("phrase", REPLACED)
def test_nobody_has_to_decode_it(phrase: str) -> None:
    words = re.compile(rf"\b{re.escape(phrase)}".replace("\\ ", r"\s+"))
    files = [
        file
        for file in [*SAID, *SHOWN]
        if not file.relative_to(ROOT).as_posix().startswith(AS_WRITTEN)
    ]

    assert [
        str(file.relative_to(ROOT)) for file in files if words.search(file.read_text())
    ] == []
