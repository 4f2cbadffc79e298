"""The page of an administrator's settings names every one."""

import re

from shardwright.api.settings import KNOWN
from tests.support.builders_chart import ROOT

PAGE = ROOT / "docs" / "howto" / "defaults-for-all-models.md"


def test_the_page_names_all_settings() -> None:
    assert sorted(set(KNOWN) - set(re.findall(r"\b(\w+)\b", PAGE.read_text()))) == []
