"""What a release brings is said with a source that can be looked up."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from shardwright.engines.versions import is_newer
from shardwright.engines.vllm.releases import NEWEST_DEFAULT
from shardwright.rendering import fixes
from shardwright.rendering.fixes import Fix, fixes_of_engine, fixes_of_pods, known_fixes

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "howto" / "upgrade.md"


def test_every_fix_comes_with_fields_of_pods_or_with_a_version_and_has_a_source() -> None:
    for fix in known_fixes():
        assert bool(fix.fields) != bool(fix.engine and fix.version), fix
        assert fix.source.startswith("https://") or (ROOT / fix.source).is_file(), fix


def test_a_fix_of_an_engine_is_in_the_default_of_this_release() -> None:
    assert [
        fix
        for fix in known_fixes()
        if fix.engine == "vLLM" and is_newer(fix.version, NEWEST_DEFAULT)
    ] == []


def test_fields_of_pods_bring_what_belongs_to_them_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fix = Fix(id="token", what="", source="https://x", fields=("spec.volumes[group]",))
    other = replace(fix, id="other", fields=("spec.volumes[other]",))
    monkeypatch.setattr(fixes, "known_fixes", lambda: (other, fix))
    assert fixes_of_pods(["spec.volumes[group]", "spec.containers[engine].image"]) == (fix,)
    assert fixes_of_pods([]) == ()


def test_versions_bring_what_belongs_to_them_and_nothing_else() -> None:
    assert [fix.id for fix in fixes_of_engine("vLLM", "0.29.0", "0.31.0")] == ["CVE-2026-105757"]
    assert fixes_of_engine("vLLM", "0.33.0", "0.29.0") == ()


def test_the_upgrade_page_lists_every_fix() -> None:
    rows = re.findall(
        r"^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \| (\S+) \|$", PAGE.read_text(), re.MULTILINE
    )
    wanted = [
        (fix.id, f"{fix.engine} {fix.version}" if fix.engine else "a restart", fix.what, fix.source)
        for fix in known_fixes()
    ]
    assert rows == [(name, by, what, _link(source)) for name, by, what, source in wanted]


def _link(source: str) -> str:
    return (
        f"<{source}>"
        if source.startswith("https://")
        else f"[{Path(source).name[:4]}](../{source.removeprefix('docs/')})"
    )
