"""What a release brings is said with a source that can be looked up."""

import re
from pathlib import Path

from shardwright.engines.versions import is_newer
from shardwright.engines.vllm.releases import NEWEST_DEFAULT
from shardwright.rendering.fixes import fixes_of_engine, known_fixes

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "howto" / "upgrade.md"


def test_every_fix_comes_with_a_version_and_has_a_source() -> None:
    for fix in known_fixes():
        assert fix.engine, fix
        assert fix.version, fix
        assert fix.source.startswith("https://"), fix


def test_a_fix_of_an_engine_is_in_the_default_of_this_release() -> None:
    assert [
        fix
        for fix in known_fixes()
        if fix.engine == "vLLM" and is_newer(fix.version, NEWEST_DEFAULT)
    ] == []


def test_versions_bring_what_belongs_to_them_and_nothing_else() -> None:
    assert [fix.id for fix in fixes_of_engine("vLLM", "0.29.0", "0.31.0")] == ["CVE-2026-105757"]
    assert fixes_of_engine("vLLM", "0.33.0", "0.29.0") == ()


def test_the_upgrade_page_lists_every_fix() -> None:
    rows = re.findall(
        r"^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \| (\S+) \|$", PAGE.read_text(), re.MULTILINE
    )
    assert rows == [
        (fix.id, f"{fix.engine} {fix.version}", fix.what, f"<{fix.source}>")
        for fix in known_fixes()
    ]
