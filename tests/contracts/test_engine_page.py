"""The pages on engine arguments and on variables list what the policies say."""

import re
from pathlib import Path

import pytest

from shardwright.engines import environment, trtllm_policy
from shardwright.engines.policy import Policy
from shardwright.engines.reference import options_page

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGES = [("tensorrt-llm.md", trtllm_policy.TENSORRT_LLM)]
OPTIONS = DOCS / "reference" / "vllm-options.md"


def test_the_page_of_all_options_is_the_generated_one(*, update_goldens: bool) -> None:
    """Run this test with ``--update-goldens`` when it fails, and read the diff."""
    if update_goldens:
        OPTIONS.write_text(options_page())

    assert OPTIONS.read_text() == options_page()


@pytest.mark.parametrize(("page", "listed"), PAGES, ids=[page for page, _ in PAGES])
def test_a_page_lists_the_allowed_options_and_no_others(page: str, listed: Policy) -> None:
    assert re.findall(r"^- `([a-z0-9-]+)`$", (DOCS / page).read_text(), re.MULTILINE) == sorted(listed.allowed)


@pytest.mark.parametrize(("page", "listed"), PAGES, ids=[page for page, _ in PAGES])
def test_a_page_says_what_to_set_instead_and_why_an_option_is_refused(page: str, listed: Policy) -> None:
    rows = dict(re.findall(r"^\| `([a-z0-9-]+)` \| (.+) \|$", (DOCS / page).read_text(), re.MULTILINE))

    assert rows == {**listed.counted, **listed.owned, **listed.dangerous, **listed.incompatible}


def test_the_page_on_variables_lists_those_that_each_engine_may_be_given() -> None:
    page = (DOCS / "environment.md").read_text()
    listed = [re.findall(r"^- `(\w+)`$", part, re.MULTILINE) for part in re.split(r"^## ", page, flags=re.MULTILINE)[1:4]]

    assert listed == [
        sorted(environment.COMMON),
        sorted(environment.VLLM - environment.COMMON),
        sorted(environment.TENSORRT_LLM - environment.COMMON),
    ]


def test_the_page_on_variables_says_why_one_is_refused() -> None:
    rows = dict(re.findall(r"^\| `([A-Z0-9_]+)` \| (.+) \|$", (DOCS / "environment.md").read_text(), re.MULTILINE))

    assert rows == {**environment.DANGEROUS, **environment.NEVER}
