"""What a ControllerRevision says is believed where it is what was kept, and nothing of it that
somebody else has written.
"""

import json
import zlib
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest

from shardwright.errors import Problem
from shardwright.reconcile.revisions import (
    SURPLUS_MAX,
    TEXT_BYTES_MAX,
    History,
    Revision,
    Saying,
    Served,
    history_of,
    read_revision,
    renewed,
    revisions_of,
)
from shardwright.reconcile.writes import KeepRevision
from tests.support.builders_reconcile import NOON, OWNER_UID, a_record
from tests.support.builders_snapshot import ONE_NODE
from tests.support.builders_subject import a_subject
from tests.support.going_back import serving

GONE = "revision 1 is gone: its ControllerRevision does not exist, and what runs is left as it is"
OTHER = (
    "revision 1 is not what the operator has kept: somebody has put another in its place, and "
    "what runs is left as it is"
)


def kept() -> tuple[dict[str, Any], Revision]:
    """Return a revision as it is stored, and what the status says of it."""
    operator = serving(1, **ONE_NODE)
    (written,) = (write for write in operator.written if isinstance(write, KeepRevision))
    (revision,) = revisions_of(operator.status)
    return json.loads(json.dumps(written.content)), revision


def says(text: object) -> Callable[[dict[str, Any]], None]:
    return lambda content: content.update(data={"zlib": text})


def packed(content: bytes) -> str:
    return b64encode(zlib.compress(content, 9)).decode()


def test_what_was_kept_is_read() -> None:
    content, revision = kept()
    found = read_revision(content, OWNER_UID, revision)
    assert isinstance(found, Saying)
    assert found.spec["parallelism"] == ONE_NODE["parallelism"]


@pytest.mark.parametrize(
    "change",
    [
        says(packed(b'{"spec":{},"config":null,"record":"{}"}')),
        says(packed(b" " * (TEXT_BYTES_MAX + 1))),
        says(packed(b"\xff")),
        says(b64encode(b"not compressed").decode()),
        says("not base64"),
        says(7),
        lambda content: content.pop("data"),
    ],
    ids=["another text", "a bomb", "no text", "no zlib", "no base64", "a number", "no data"],
)
def test_what_somebody_has_written_in_its_place_is_not_believed(
    change: Callable[[dict[str, Any]], Any],
) -> None:
    content, revision = kept()
    change(content)
    found = read_revision(content, OWNER_UID, revision)
    assert isinstance(found, Problem)
    assert (found.code, found.sentence().partition(";")[0]) == ("RevisionUnusable", OTHER)


def test_a_revision_of_another_resource_counts_as_gone() -> None:
    content, revision = kept()
    content["metadata"]["ownerReferences"][0]["uid"] = "another"
    for there in (content, None):
        found = read_revision(there, OWNER_UID, revision)
        assert isinstance(found, Problem)
        assert (found.code, found.sentence().partition(";")[0]) == ("RevisionUnusable", GONE)


def test_while_many_do_not_go_none_is_kept_and_they_are_tried_on() -> None:
    surplus = tuple(f"digest-{number}" for number in range(SURPLUS_MAX))
    there = Revision(
        number=1, hash="another", digest="kept", image="vllm", kept_at="2026-01-02T12:00:00Z"
    )
    before = History(revisions=(there,), surplus=surplus)
    served = Served(subject=a_subject(), record=a_record(), mixed=True)
    found = renewed(before, served, None, NOON)
    assert found
    assert (found.revisions, found.keeps, tuple(found.drops)) == ((there,), None, surplus)
    assert found.after(before, tuple(found.drops.values())[:1]).surplus == surplus[1:]


@pytest.mark.parametrize("named", [None, "x", 7, {"a": 1}, [1, None]])
def test_what_a_status_names_that_is_no_list_of_digests_is_none(named: object) -> None:
    assert history_of({"surplusRevisions": named}).surplus == ()
