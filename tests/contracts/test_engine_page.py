"""The page on engine arguments lists what the policy says."""

import re
from pathlib import Path

from shardwright.engines.policy import ALLOWED, COUNTED, DANGEROUS, INCOMPATIBLE, OWNED

PAGE = (Path(__file__).parent.parent.parent / "docs" / "engines.md").read_text()


def test_the_page_lists_the_allowed_options_and_no_others() -> None:
    assert re.findall(r"^- `([a-z0-9-]+)`$", PAGE, re.MULTILINE) == sorted(ALLOWED)


def test_the_page_says_what_to_set_instead_and_why_an_option_is_refused() -> None:
    rows = dict(re.findall(r"^\| `([a-z0-9-]+)` \| (.+) \|$", PAGE, re.MULTILINE))

    assert rows == {**COUNTED, **OWNED, **DANGEROUS, **INCOMPATIBLE}
