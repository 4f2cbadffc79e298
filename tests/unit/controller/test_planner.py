"""What the planner keeps beside the plans: the administrator's catalogue."""

import json
from pathlib import Path

import pytest

from shardwright.api.resource import parse_manifest
from shardwright.controller.planner import Planner
from shardwright.controller.view import View
from shardwright.errors import InputError
from tests.support.builders_resource import A_CONFIG, a_sharded_model


def a_catalogue(name: str = "us/ours") -> str:
    return json.dumps({name: json.dumps(A_CONFIG)})


def test_a_catalogue_is_read_when_it_changes_and_only_then(tmp_path: Path) -> None:
    file = tmp_path / "models.json"
    planner = Planner(View(), file)
    assert not planner.reload()
    file.write_text(a_catalogue())
    assert [planner.reload(), planner.reload()] == [True, False]


def test_a_catalogue_that_cannot_be_read_changes_nothing_and_ends_nothing(tmp_path: Path) -> None:
    file = tmp_path / "models.json"
    planner = Planner(View(), file)
    for content in (b"\xff\xfe no text", b"{", b"[]", json.dumps({"us/ours": A_CONFIG}).encode()):
        file.write_bytes(content)
        assert not planner.reload()
    file.unlink()
    file.mkdir()  # what is there cannot be opened
    assert not planner.reload()


def test_new_settings_hold_and_broken_ones_change_nothing(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    planner = Planner(View(), None, file)
    planner.load_settings()  # nothing is there yet
    file.write_text(json.dumps({"engineDefaults": {"engine": {"args": {"seed": 4}}}}))
    assert planner.reload()
    for content in ("{", '{"engineDefaults": {"engine": {"image": "-"}}}', '{"admittedArguments": ["config"]}'):
        file.write_text(content)
        assert not planner.reload()
    file.unlink()
    assert not planner.reload()

    subject = planner.resolve(parse_manifest(a_sharded_model()), None)

    assert subject.resource.spec.engine.args == {"seed": 4}
    assert subject.defaulted == ("engine.args.seed",)


def test_an_operator_does_not_start_with_broken_settings(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text('{"engineDefaults": {"replicas": 1}}')

    with pytest.raises(InputError, match=r"engineDefaults\.replicas: is not a setting"):
        Planner(View(), None, file).load_settings()
