"""The page of the command line names every setting."""

import re

from shardwright.api.settings import KNOWN
from tests.support.builders_chart import ROOT

PAGE = ROOT / "docs" / "reference" / "cli.md"


def test_the_page_names_all_settings() -> None:
    (sentence,) = re.findall(r"^- `--settings FILE` (.*?)\n- ", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert sorted(re.findall(r"`(\w+)`", sentence)) == sorted(KNOWN)
