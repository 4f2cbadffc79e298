"""What the planner keeps beside the plans: the administrator's catalogue."""

import json
from pathlib import Path

from shardwright.controller.planner import Planner
from shardwright.controller.view import View
from tests.support.builders_resource import A_CONFIG


def a_catalogue(name: str = "us/ours") -> str:
    return json.dumps({name: json.dumps(A_CONFIG)})


def test_a_catalogue_is_read_when_it_changes_and_only_then(tmp_path: Path) -> None:
    file = tmp_path / "models.json"
    planner = Planner(View(), file)
    assert not planner.reload_catalogue()
    file.write_text(a_catalogue())
    assert [planner.reload_catalogue(), planner.reload_catalogue()] == [True, False]


def test_a_catalogue_that_cannot_be_read_changes_nothing_and_ends_nothing(tmp_path: Path) -> None:
    file = tmp_path / "models.json"
    planner = Planner(View(), file)
    for content in (b"\xff\xfe no text", b"{", b"[]", json.dumps({"us/ours": A_CONFIG}).encode()):
        file.write_bytes(content)
        assert not planner.reload_catalogue()
    file.unlink()
    file.mkdir()  # what is there cannot be opened
    planner.reload_catalogue()
