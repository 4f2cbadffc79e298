"""The page of the operator's flags is made from its parser."""

import argparse

import pytest

from shardwright.controller.options import operator_parser
from tests.support.builders_chart import ROOT

PAGE = ROOT / "docs" / "reference" / "operator.md"
BEGIN, END = "<!-- flags: written by `pytest tests/contracts --update-goldens` -->\n", "<!-- end of flags -->\n"


def test_the_page_lists_the_flags_as_the_parser_has_them(monkeypatch: pytest.MonkeyPatch, *, update_goldens: bool) -> None:
    for name in ("KUBECONFIG", "POD_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
    before, _, rest = PAGE.read_text().partition(BEGIN)
    written, _, after = rest.partition(END)

    if update_goldens:
        PAGE.write_text(f"{before}{BEGIN}{table()}{END}{after}")
        return

    assert written == table()


def table() -> str:
    flags = [action for action in operator_parser()._actions if action.dest != "help"]
    rows = [f"| {' '.join(f'`{name}`' for name in flag.option_strings)} | {default(flag)} | {flag.help} |" for flag in flags]
    return "\n".join(["", "| flag | default | what it does |", "|---|---|---|", *rows, "", ""])


def default(flag: argparse.Action) -> str:
    return "" if flag.default is None else f"`{flag.default}`"
