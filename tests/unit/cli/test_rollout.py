"""``rollout`` tells revisions apart, and writes only where something comes of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from shardwright.cli.main import main
from shardwright.cli.rollout import print_history, shown_revisions
from shardwright.reconcile.group import ROLLBACK_TO
from shardwright.reconcile.record_object import record_key
from shardwright.reconcile.revisions import Saying, read_revision, revisions_of
from tests.support.builders_live import a_live_model
from tests.support.builders_snapshot import ONE_NODE, OWNER, Operator
from tests.support.scripted_api import Answer, ScriptedApi
from tests.support.small_cluster import SmallCluster

Capture = pytest.CaptureFixture[str]
DEBUG = {"env": [{"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"}]}


def _serving() -> Operator:
    cluster = SmallCluster()
    cluster.add_nodes(2)
    operator = Operator(cluster, ONE_NODE)
    operator.run(600)
    return operator


@contextmanager
def _cluster(operator: Operator) -> Iterator[tuple[ScriptedApi, list[str]]]:
    """Give the API server of an operator's model, and the words that name it."""
    model = Answer(body=a_live_model(operator).content)
    record = operator.cluster.objects[record_key(OWNER)]
    by_path = {
        "/apis?": Answer(),
        f"shardedmodels/{OWNER.name}": model,
        f"configmaps/{record['metadata']['name']}": Answer(body=record),
    }
    api = ScriptedApi(Answer(404), by_path=by_path)
    host = api.access().configuration.host
    try:
        yield api, [OWNER.name, "-n", OWNER.namespace, "--server", host]
    finally:
        api.stop()


def _asked(operator: Operator, *words: str) -> tuple[int, list[Any]]:
    """Return the exit code of an action, and what it wrote."""
    with _cluster(operator) as (api, named):
        code = main(["rollout", words[0], *named, *words[1:]])
    return code, [body for verb, _, body in api.requests if verb == "PATCH"]


def test_a_model_that_serves_its_spec_has_nothing_to_retry(capsys: Capture) -> None:
    assert _asked(_serving(), "retry") == (0, [])
    assert capsys.readouterr().out == ("models/llama: nothing to retry: it serves its spec\n")


def test_a_model_that_runs_a_revision_in_place_of_its_spec_has_it_tried_again() -> None:
    operator = _serving()
    operator.edit(engine=DEBUG)
    operator.run(1200)
    operator.annotations = {ROLLBACK_TO: "1"}
    operator.run(1200)

    code, (written,) = _asked(operator, "retry")

    assert code == 0
    assert written["metadata"]["annotations"][ROLLBACK_TO].startswith("spec@")


def test_a_spec_that_nobody_has_looked_at_yet_can_be_tried_again() -> None:
    operator = _serving()
    operator.generation += 1

    assert len(_asked(operator, "retry")[1]) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "there is only revision 1, and it runs"),
        (
            ["--to-revision", "9"],
            "revision 9 does not exist: there is only revision 1, and it runs",
        ),
    ],
)
def test_where_there_is_one_revision_there_is_none_to_go_back_to(
    words: list[str], said: str, capsys: Capture
) -> None:
    assert _asked(_serving(), "undo", *words) == (2, [])
    assert capsys.readouterr().err == (f"error[RevisionUnknown]: --to-revision: {said}\n")


def test_the_revision_that_runs_is_not_asked_for_again(capsys: Capture) -> None:
    assert _asked(_serving(), "undo", "--to-revision", "1") == (0, [])
    assert capsys.readouterr().out == "models/llama: nothing to undo: revision 1 runs\n"


def _of_two_revisions() -> Operator:
    operator = _serving()
    operator.edit(engine=DEBUG)
    operator.run(1200)
    return operator


def _request(operator: Operator, *words: str) -> str:
    """Return what the annotation that an action writes asks for."""
    code, (written,) = _asked(operator, *words)
    assert code == 0
    request: str = written["metadata"]["annotations"][ROLLBACK_TO]
    return request.partition("@")[0]


@pytest.mark.parametrize("words", [["--to-revision", "2"], []])
def test_the_revision_that_an_edit_is_about_to_replace_is_gone_back_to(words: list[str]) -> None:
    operator = _of_two_revisions()
    operator.generation += 1

    assert _request(operator, "undo", *words) == "2"


def test_a_request_that_nobody_has_answered_is_replaced_by_what_runs() -> None:
    operator = _of_two_revisions()
    operator.annotations = {ROLLBACK_TO: "1@2026-01-01T00:00:00Z"}

    assert _request(operator, "undo", "--to-revision", "2") == "2"
    assert _request(operator, "retry") == "spec"


def test_where_a_request_was_answered_what_runs_is_not_asked_for_again() -> None:
    operator = _of_two_revisions()
    operator.annotations = {ROLLBACK_TO: "1@2026-01-01T00:00:00Z"}
    operator.run(1200)

    assert _asked(operator, "undo", "--to-revision", "3") == (0, [])
    assert _request(operator, "undo") == "2"


def test_what_cannot_be_seen_to_be_answered_is_asked_again() -> None:
    operator = _serving()
    operator.annotations = {ROLLBACK_TO: "spec@2026-01-01T00:00:00Z"}
    operator.run(60)
    assert _asked(operator, "retry") == (0, [])
    operator.cluster.objects[record_key(OWNER)]["data"] = {}

    assert _request(operator, "retry") == "spec"


def test_the_history_says_in_what_revisions_differ_and_when_each_served_first(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    operator = _serving()
    operator.edit(engine=DEBUG)
    operator.run(1200)
    operator.edit(engine=DEBUG, parallelism={"tensor": 4})
    operator.run(1200)
    found = revisions_of(operator.status)
    said = {
        revision.digest: saying
        for revision in found
        for item in operator.cluster.revisions.values()
        if isinstance(saying := read_revision(item, OWNER.uid, revision), Saying)
    }

    print_history(shown_revisions(operator.status["revisions"], found, said), "text")

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [
        ["1", "no", found[0].kept_at],
        ["2", "no", found[1].kept_at],
        ["3", "yes", found[2].kept_at],
    ]
    cells = [re.split(" {2,}", line.strip()) for line in lines]
    assert cells[0][2:5] == ["FIRST SERVED", "LAYOUT", "CHANGED"]
    assert [row[3:5] for row in cells[1:]] == [
        ["TP8", "-"],
        ["TP8", "spec.engine.env"],
        ["TP4", "spec.parallelism.pipeline, spec.parallelism.tensor, the layout"],
    ]


def test_the_layout_of_a_revision_that_was_only_scaled_has_not_changed() -> None:
    operator = _serving()
    (revision,) = revisions_of(operator.status)
    (said,) = (
        saying
        for item in operator.cluster.revisions.values()
        if isinstance(saying := read_revision(item, OWNER.uid, revision), Saying)
    )
    layout = replace(said.plan.layout, replicas=said.plan.layout.replicas + 1)
    scaled = replace(said, plan=replace(said.plan, layout=layout))
    found = [revision, replace(revision, number=2, digest="scaled")]
    sayings = {revision.digest: said, "scaled": scaled}

    _, second = shown_revisions([], found, sayings)

    assert second.changed == ()


def test_a_revision_that_may_not_be_read_is_shown_without_what_it_says(capsys: Capture) -> None:
    with _cluster(_serving()) as (_, named):
        assert main(["rollout", "history", *named]) == 0

    header, row = capsys.readouterr().out.splitlines()
    assert header.split()[:4] == ["REVISION", "RUNS", "FIRST", "SERVED"]
    assert row.split()[3:5] == ["-", "-"]


def test_the_help_of_rollout_lists_every_form_of_the_command(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit):
        main(["rollout", "--help"])

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == ("usage: shardwright rollout {history,undo,retry} NAME [OPTIONS]")
    assert next(line for line in lines if "revisions" in line).startswith("  {history,undo,retry}")
