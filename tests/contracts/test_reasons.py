"""Every reason that the code can give is explained once, under its own name."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
SOURCE = ROOT / "operator" / "shardwright"
CODE = re.compile(r"""\bcode=["']([A-Z][A-Za-z]+)["']""")


def _given() -> set[str]:
    return {code for path in SOURCE.rglob("*.py") for code in CODE.findall(path.read_text())}


def _explained() -> list[str]:
    return re.findall(r"^### ([A-Za-z]+)$", (ROOT / "docs" / "reasons.md").read_text(), re.MULTILINE)


def test_every_reason_has_a_paragraph() -> None:
    assert sorted(_given() - set(_explained())) == []


def test_no_paragraph_is_left_over_and_none_stands_twice() -> None:
    explained = _explained()

    assert len(explained) == len(set(explained))
    assert sorted(set(explained) - _given() - _conditions()) == []


def _conditions() -> set[str]:
    """Reasons of conditions stand in an enumeration."""
    text = (SOURCE / "api" / "conditions.py").read_text()
    return set(re.findall(r"""= ["']([A-Z][A-Za-z]+)["']""", text))
