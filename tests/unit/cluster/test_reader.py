"""The reader: whatever the connection, the server or one object does, what it hands over becomes
what there is.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from shardwright.cluster.reader import Reader, ReaderHealth, Source, Timing
from shardwright.cluster.resources import PODS
from shardwright.cluster.streams import Trouble
from tests.support.watch_api import (
    Delivered,
    Reply,
    WatchApi,
    a_list,
    a_refused_reply,
    a_watch,
    an_object,
    line,
)

A, B, C = ("models", "a"), ("models", "b"), ("models", "c")
QUICK = Timing(silence=5, proof=0, first_pause=0.001, longest_pause=0.002)


def value_of(content: dict[str, Any]) -> Any:
    return content["value"] or None


@contextmanager
def reading(
    api: WatchApi, timing: Timing = QUICK, *, optional: bool = False, metadata_only: bool = False
) -> Iterator[tuple[Reader[Any], Delivered]]:
    delivered = Delivered()
    source = Source(
        resource=PODS,
        project=value_of,
        query=(("labelSelector", "x"),),
        optional=optional,
        metadata_only=metadata_only,
    )
    with api:
        reader = Reader(api.client, source, delivered, timing)
        reader.start()
        yield reader, delivered
        reader.stop()
        reader.join(20)
    assert not reader.is_alive()


def test_the_reader_lists_page_by_page_and_watches_from_the_version_of_the_first_page() -> None:
    pages = [
        a_list(an_object("a", 5, 1), version=7, cursor="more"),
        a_list(an_object("b", 6, 2), version=7),
    ]
    with reading(WatchApi(pages, [a_watch(("ADDED", an_object("c", 8, 3)))])) as (
        reader,
        delivered,
    ):
        delivered.wait_for(lambda: C in delivered.state)
    assert delivered.batches == [({A: 1, B: 2}, True), ({C: 3}, False)]
    assert reader.health == ReaderHealth(synced=True)


def test_a_reader_of_metadata_asks_for_its_labels_in_pages_and_for_metadata_alone() -> None:
    api = WatchApi([a_list(version=7, cursor="more"), a_list(version=7)])
    with reading(api, metadata_only=True) as (_, delivered):
        delivered.wait_for(lambda: len(api.requests) == 3)
    first, second, watch = api.requests
    assert first == {"labelSelector": "x", "limit": "500"}
    assert second == {"labelSelector": "x", "limit": "500", "continue": "more"}
    assert 240 <= int(watch.pop("timeoutSeconds")) <= 360
    assert watch == {
        "labelSelector": "x",
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "7",
    }
    assert ["as=PartialObjectMetadataList" in accept for accept in api.accepted] == [
        True,
        True,
        False,
    ]
    assert "as=PartialObjectMetadata;" in api.accepted[2]


def test_pages_and_watches_that_end_properly_share_a_connection() -> None:
    pages = [a_list(version=7, cursor="more"), a_list(version=7, cursor="more"), a_list(version=7)]
    api = WatchApi(
        pages,
        [a_watch(ending="end"), a_watch(ending="end"), a_watch(("ADDED", an_object("a", 8, 1)))],
    )
    with reading(api) as (_, delivered):
        delivered.wait_for(lambda: delivered.state == {A: 1})
        assert api.connections == 1


def test_answers_that_a_proxy_has_unchunked_are_read_as_they_come() -> None:
    go = threading.Event()
    whole = replace(a_list(an_object("a", 5, 1), version=7), chunked=False)
    watch = replace(
        a_watch(("ADDED", an_object("b", 8, 2)), go, ("ADDED", an_object("c", 9, 3))), chunked=False
    )
    with reading(WatchApi([whole], [watch])) as (_, delivered):
        delivered.wait_for(lambda: delivered.state == {A: 1, B: 2})
        go.set()
        delivered.wait_for(lambda: delivered.state == {A: 1, B: 2, C: 3})


def test_events_that_change_nothing_that_matters_are_not_handed_over() -> None:
    same = [("MODIFIED", an_object("a", version, "x")) for version in (8, 9, 9, 10)]
    api = WatchApi(
        [a_list(an_object("a", 5, "x"), version=7)],
        [a_watch(*same, ("MODIFIED", an_object("a", 11, "y")))],
    )
    with reading(api) as (reader, delivered):
        delivered.wait_for(lambda: delivered.state == {A: "y"})
    assert delivered.batches == [({A: "x"}, True), ({A: "y"}, False)]
    assert (reader.counts.events, reader.counts.changes) == (5, 2)


def test_events_of_one_chunk_are_handed_over_together() -> None:
    chunk = b"".join(line(("ADDED", an_object(name, 8, name))) for name in "abc")
    with reading(WatchApi([a_list(version=7)], [a_watch(chunk)])) as (_, delivered):
        delivered.wait_for(lambda: len(delivered.state) == 3)
    assert delivered.batches == [({}, True), ({A: "a", B: "b", C: "c"}, False)]


def test_what_is_of_no_interest_any_more_is_gone() -> None:
    api = WatchApi(
        [a_list(an_object("a", 5, "x"), version=7)], [a_watch(("MODIFIED", an_object("a", 8, "")))]
    )
    with reading(api) as (_, delivered):
        delivered.wait_for(lambda: len(delivered.batches) == 2)
    assert delivered.batches[1] == ({A: None}, False)


@pytest.mark.parametrize(
    "end",
    [
        a_refused_reply(410, "too old resource version"),
        a_watch(("ERROR", {"code": 410, "message": "too old resource version"})),
        a_watch(("ERROR", {"code": 410}), ending="cut"),
    ],
    ids=["answer", "event", "event and end"],
)
def test_a_version_that_is_too_old_ends_in_a_list_of_which_the_difference_is_handed_over(
    end: Reply,
) -> None:
    before = a_list(an_object("a", 5, "x"), an_object("b", 5, "x"), version=7)
    after = a_list(an_object("b", 5, "x"), an_object("c", 20, "x"), version=21)
    api = WatchApi([before, after], [end])
    with reading(api) as (reader, delivered):
        delivered.wait_for(lambda: len(delivered.batches) == 2)
        delivered.wait_for(lambda: api.requests[-1].get("resourceVersion") == "21")
    assert delivered.batches[1] == ({A: None, C: "x"}, True)
    assert reader.health == ReaderHealth(synced=True)


def test_a_list_whose_later_page_has_expired_begins_again() -> None:
    api = WatchApi(
        [
            a_list(an_object("a", 5, 1), version=7, cursor="more"),
            a_refused_reply(410),
            a_list(an_object("b", 5, 2), version=9),
        ]
    )
    with reading(api) as (_, delivered):
        delivered.wait_for(lambda: bool(delivered.batches))
    assert delivered.batches == [({B: 2}, True)]


def test_after_any_other_error_in_a_watch_it_goes_on_and_lists_when_that_happens_again() -> None:
    failing = a_watch(("ERROR", {"code": 500, "message": "etcd"}))
    api = WatchApi([a_list(version=7), a_list(an_object("a", 5, 1), version=9)], [failing, failing])
    with reading(api) as (_, delivered):
        delivered.wait_for(lambda: delivered.state == {A: 1})
    assert [request.get("resourceVersion") for request in api.requests][:4] == [
        None,
        "7",
        "7",
        None,
    ]


def test_a_watch_that_ends_properly_is_followed_by_one_from_the_last_bookmark() -> None:
    bookmark = ("BOOKMARK", {"metadata": {"resourceVersion": "30"}})
    api = WatchApi(
        [a_list(version=7)],
        [a_watch(bookmark, ending="end"), a_watch(("ADDED", an_object("a", 31, 1)))],
    )
    with reading(api) as (reader, delivered):
        delivered.wait_for(lambda: delivered.state == {A: 1})
    assert [request.get("resourceVersion") for request in api.requests][:3] == [None, "7", "30"]
    assert (reader.counts.lists, reader.counts.failures) == (1, 0)


def test_a_watch_that_stands_too_long_after_the_last_list_is_followed_by_a_list() -> None:
    api = WatchApi(
        [a_list(an_object("a", 5, 1), version=7), a_list(version=9)], [a_watch(ending="end")]
    )
    with reading(api, Timing(proof=0, relist=0)) as (_, delivered):
        delivered.wait_for(lambda: len(delivered.batches) == 2)
    assert delivered.state == {}


def test_an_event_that_is_cut_off_is_read_again() -> None:
    event = line(("ADDED", an_object("a", 8, 1)))
    cut = a_watch(("ADDED", an_object("b", 8, 1)), event[:-20], ending="cut")
    api = WatchApi([a_list(version=7)], [cut, a_watch(("ADDED", an_object("a", 9, 1)))])
    with reading(api) as (_, delivered):
        delivered.wait_for(lambda: delivered.state == {A: 1, B: 1})
    assert [request.get("resourceVersion") for request in api.requests][:3] == [None, "7", "8"]


def test_a_list_that_is_cut_off_changes_nothing() -> None:
    whole = a_list(an_object("b", 5, 1), version=9).parts[0]
    assert isinstance(whole, bytes)
    cut = Reply(parts=[whole[:-10]], ending="cut")
    expired = a_refused_reply(410)
    short = Reply(parts=[whole[:-10]])
    api = WatchApi(
        [
            a_list(an_object("a", 5, 1), version=7),
            cut,
            short,
            a_list(an_object("c", 5, 1), version=9),
        ],
        [expired],
    )
    with reading(api) as (_, delivered):
        delivered.wait_for(lambda: len(delivered.batches) == 2)
    assert delivered.batches == [({A: 1}, True), ({A: None, C: 1}, True)]


def test_a_connection_that_says_nothing_is_dead_and_one_after_the_other_ends_in_a_list() -> None:
    api = WatchApi(
        [a_list(version=7), a_list(an_object("b", 9, 1), version=9)],
        [a_watch(), a_watch(("ADDED", an_object("a", 8, 1))), a_watch(), a_watch()],
    )
    with reading(api, Timing(silence=0.5, proof=0, first_pause=0.001)) as (_, delivered):
        delivered.wait_for(lambda: delivered.state == {B: 1})
    versions = [request.get("resourceVersion") for request in api.requests]
    assert versions[:5] == [None, "7", "7", "8", None]


def test_silence_after_silence_shows_until_something_comes() -> None:
    go = threading.Event()
    late = a_watch(go, ("ADDED", an_object("a", 8, 1)))
    with reading(
        WatchApi([a_list(version=7)] * 9, [a_watch()] * 3 + [late]),
        Timing(silence=0.5, proof=0, first_pause=0.001),
    ) as (reader, delivered):
        delivered.wait_for(lambda: reader.counts.failures >= 2)
        assert reader.health.trouble is Trouble.SILENT
        go.set()
        delivered.wait_for(lambda: delivered.state == {A: 1})
        delivered.wait_for(lambda: reader.health.failing_since is None)


def test_what_cuts_every_quiet_watch_after_a_while_is_no_trouble() -> None:
    with reading(WatchApi([a_list(version=7)], [a_watch(ending="cut")] * 5)) as (reader, delivered):
        delivered.wait_for(lambda: reader.counts.failures == 5)
        assert reader._failures == 1
        assert reader.health == ReaderHealth(synced=True)
        assert reader.counts.lists == 1


def test_a_watch_that_stands_is_trusted_although_nothing_happens() -> None:
    expired = a_watch(("ERROR", {"code": 410}))
    lists = [a_list(version=7)] * 4
    with reading(
        WatchApi(lists, [expired] * 3), Timing(proof=0.05, first_pause=0.001, longest_pause=0.002)
    ) as (reader, delivered):
        delivered.wait_for(lambda: reader.counts.watches == 4)
        assert reader._health.trouble is Trouble.EXPIRED
        delivered.wait_for(lambda: reader.health == ReaderHealth(synced=True))


@pytest.mark.parametrize(
    "strange",
    [
        Reply(parts=[b"<html><body>Welcome</body></html>"]),
        Reply(parts=[b'{"kind":"Status","status":"Success"}']),
        Reply(parts=[b"[]"]),
        Reply(parts=[b"{}"]),
        Reply(
            parts=[
                b'{"metadata":{"resourceVersion":"3"},"items":[{"metadata":{"name":"x"}} {"a":1}]}'
            ]
        ),
        Reply(parts=[b""]),
        a_refused_reply(503),
        Reply(status=404, parts=[b"<html>no such page</html>"]),
    ],
    ids=[
        "page",
        "status",
        "array",
        "empty",
        "malformed",
        "nothing",
        "unavailable",
        "not found page",
    ],
)
def test_what_is_no_list_changes_nothing_and_is_asked_for_again(strange: Reply) -> None:
    before, after = (
        a_list(an_object("a", 5, 1), version=7),
        a_list(an_object("b", 5, 1), version=9),
    )
    with reading(
        WatchApi([before, strange, strange, after], [a_refused_reply(410)]), optional=True
    ) as (_, delivered):
        delivered.wait_for(lambda: len(delivered.batches) == 2)
    assert delivered.batches == [({A: 1}, True), ({A: None, B: 1}, True)]


@pytest.mark.parametrize(
    "strange",
    [
        b"<html>\n",
        b"7\n",
        b"null\n",
        b'{"type":"ADDED"}\n',
        b'{"type":"ADDED","object":{"metadata":{}}}\n',
        b'{"ty\n',
    ],
)
def test_what_is_no_event_ends_the_watch_and_not_the_reader(strange: bytes) -> None:
    api = WatchApi(
        [a_list(version=7), a_list(version=7)],
        [a_watch(strange), a_watch(("ADDED", an_object("a", 8, 1)))],
    )
    with reading(api) as (_, delivered):
        delivered.wait_for(lambda: delivered.state == {A: 1})


def test_events_out_of_order_end_in_a_list() -> None:
    api = WatchApi(
        [a_list(version=7), a_list(an_object("a", 9, "new"), version=9)],
        [a_watch(("ADDED", an_object("a", 9, "new")), ("MODIFIED", an_object("a", 8, "old")))],
    )
    with reading(api) as (reader, delivered):
        delivered.wait_for(lambda: reader.counts.lists == 2)
    assert [batch for batch, _ in delivered.batches] == [{}, {A: "new"}, {}]


def test_what_was_written_and_is_gone_before_it_is_heard_of_is_handed_over_as_gone() -> None:
    go = threading.Event()
    api = WatchApi([a_list(version=7), a_list(version=12)], [a_watch(go, ("ERROR", {"code": 410}))])
    with reading(api) as (reader, delivered):
        delivered.wait_for(lambda: reader.counts.watches == 1)
        reader.expect(A, 9)
        reader.expect(B, 13)
        go.set()
        delivered.wait_for(lambda: reader.counts.lists == 2)
    assert delivered.batches[-1] == ({A: None}, True), "the LIST is older than B"


def test_what_had_come_and_gone_before_its_writer_had_the_answer_is_handed_over_as_gone() -> None:
    """The watch is sooner than the answer to a creation, and the garbage collector, too."""
    told, go = threading.Event(), threading.Event()
    gone = [("ADDED", an_object("a", 9, 1)), ("DELETED", an_object("a", 10, 1))]
    later = ("ADDED", an_object("b", 11, 2))
    watch = Reply(parts=[*map(line, gone), go, line(later), told])
    with reading(WatchApi([a_list(version=7)], [watch])) as (reader, delivered):
        delivered.wait_for(lambda: reader._version == "10")
        reader.expect(A, 9)
        reader.expect(C, 12)
        go.set()
        delivered.wait_for(lambda: B in delivered.state)
        told.set()
    assert delivered.batches[-1] == ({B: 2, A: None}, False), "C has not been heard of yet"
    assert reader._written == {C: 12}


def test_what_was_written_is_there_for_as_long_as_its_events_say_so() -> None:
    go = threading.Event()
    events = [("ADDED", an_object("a", 9, 1)), ("MODIFIED", an_object("b", 8, 2))]
    api = WatchApi(
        [a_list(an_object("b", 5, 1), version=7), a_list(an_object("a", 9, 1), version=12)],
        [a_watch(go, *events[::-1], ("ERROR", {"code": 410}))],
    )
    with reading(api) as (reader, delivered):
        delivered.wait_for(lambda: reader.counts.watches == 1)
        reader.expect(A, 9)
        reader.expect(B, 10)
        go.set()
        delivered.wait_for(lambda: reader.counts.lists == 2)
    assert delivered.state == {A: 1}
    assert reader._written == {}


def test_a_refusal_is_said_once_wakes_nobody_and_shows_until_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    go = threading.Event()
    refused = Reply(
        status=403,
        parts=[go, json.dumps({"kind": "Status", "message": "no watch for you"}).encode()],
    )
    api = WatchApi(
        [a_list(an_object("a", 5, 1), version=7)],
        [refused, *[a_refused_reply(403, "no watch for you")] * 5],
    )
    with reading(api) as (reader, delivered):
        delivered.wait_for(lambda: reader.health.synced)
        go.set()
        delivered.wait_for(lambda: reader.counts.failures > 3)
        failing = reader.health
        delivered.wait_for(lambda: reader.counts.watches == 1)
        delivered.wait_for(lambda: reader.health == ReaderHealth(synced=True))
    assert failing.failing_since is not None
    assert (failing.trouble, failing.message, failing.synced) == (
        Trouble.FORBIDDEN,
        "403 no watch for you",
        True,
    )
    assert len(delivered.batches) == 1
    said = [record.getMessage() for record in caplog.records]
    assert said[0] == "cannot read pods (Forbidden), trying again and again: 403 no watch for you"
    assert said[1].startswith("pods can be read again, after ")
    assert len(said) == 2


def test_the_pauses_between_attempts_grow() -> None:
    api = WatchApi([])
    with reading(api, Timing(first_pause=0.01, longest_pause=1000)) as (reader, delivered):
        delivered.wait_for(lambda: reader.counts.failures >= 4)
        assert reader._pause() == pytest.approx(0.01 * 2 ** (reader.counts.failures - 1), rel=0.2)


def test_a_server_that_closes_every_watch_at_once_is_not_asked_without_a_pause() -> None:
    api = WatchApi([a_list(version=7)] * 3, [a_watch(ending="end")] * 3)
    with reading(api, Timing(proof=10, first_pause=0.001)) as (reader, delivered):
        delivered.wait_for(lambda: reader.counts.failures >= 3)
        delivered.wait_for(lambda: reader.health.trouble is Trouble.BROKEN)


def test_a_kind_that_the_cluster_does_not_have_has_no_objects_until_it_comes() -> None:
    missing = Reply(status=404, parts=[b"404 page not found\n"])
    go = threading.Event()
    comes = Reply(parts=[go, *a_list(an_object("a", 5, 1), version=7).parts])
    with reading(WatchApi([missing, missing, comes]), optional=True) as (reader, delivered):
        delivered.wait_for(lambda: reader.counts.failures == 2)
        assert reader.health == ReaderHealth(synced=True, served=False)
        go.set()
        delivered.wait_for(lambda: reader.health == ReaderHealth(synced=True))
    assert delivered.batches == [({}, True), ({A: 1}, True)]


def test_a_kind_that_goes_takes_its_objects_along() -> None:
    missing = Reply(status=404, parts=[b"404 page not found\n"])
    with reading(WatchApi([a_list(an_object("a", 5, 1), version=7)], [missing]), optional=True) as (
        reader,
        delivered,
    ):
        delivered.wait_for(lambda: not reader.health.served)
    assert delivered.batches == [({A: 1}, True), ({A: None}, True)]


def test_what_is_not_ours_to_see_any_more_may_still_be_there() -> None:
    api = WatchApi([a_list(an_object("a", 5, 1), version=7)], [a_refused_reply(403)] * 3)
    with reading(api, optional=True) as (reader, delivered):
        delivered.wait_for(lambda: reader.counts.failures == 3)
    assert delivered.state == {A: 1}


def test_a_kind_that_need_not_be_there_is_read_only_where_it_is_ours_to_see() -> None:
    api = WatchApi([a_list(an_object("a", 5, 1), version=7)], rights=[False, False, True])
    with reading(api, optional=True) as (reader, delivered):
        delivered.wait_for(lambda: delivered.state == {A: 1})
        assert reader.health == ReaderHealth(synced=True)
    assert delivered.batches == [({}, True), ({A: 1}, True)]
    assert (reader.counts.lists, reader.counts.failures) == (1, 2)
    assert (
        api.asked_rights
        == [{"group": "", "resource": "pods", "subresource": "", "verb": "list"}] * 3
    )
    assert len([query for query in api.requests if "watch" not in query]) == 1


def test_what_the_right_to_see_was_taken_of_is_not_asked_for_again() -> None:
    api = WatchApi(
        [a_list(an_object("a", 5, 1), version=7)],
        [a_refused_reply(403)],
        rights=[True] + [False] * 10_000,
    )
    with reading(api, optional=True) as (reader, delivered):
        delivered.wait_for(lambda: reader.counts.failures >= 4)
        assert reader.health == ReaderHealth(synced=True, served=False)
    assert delivered.state == {A: 1}
    assert len(api.requests) == 2


def test_a_kind_that_must_be_there_is_waited_for() -> None:
    missing = Reply(status=404, parts=[b"404 page not found\n"])
    with reading(WatchApi([missing, a_list(version=7)])) as (reader, delivered):
        delivered.wait_for(lambda: reader.health.trouble is Trouble.NOT_SERVED)
        assert not delivered.batches
        delivered.wait_for(lambda: reader.health == ReaderHealth(synced=True))


def test_an_object_whose_projection_fails_concerns_that_object_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    odd = an_object("odd", 8)
    del odd["value"]
    api = WatchApi(
        [a_list(odd, an_object("a", 5, 1), version=7)],
        [
            a_watch(
                ("MODIFIED", {**odd, "metadata": {**odd["metadata"], "resourceVersion": "9"}}),
                ("ADDED", an_object("b", 10, 2)),
            )
        ],
    )
    with reading(api) as (reader, delivered):
        delivered.wait_for(lambda: B in delivered.state)
    assert delivered.state == {A: 1, B: 2}
    assert reader.counts.unreadable == 2
    assert [record.getMessage() for record in caplog.records] == [
        "pods models/odd cannot be read: a fault of ours"
    ]


def test_an_object_whose_projection_begins_to_fail_is_absent() -> None:
    odd = an_object("a", 8)
    del odd["value"]
    with reading(
        WatchApi([a_list(an_object("a", 5, 1), version=7)], [a_watch(("MODIFIED", odd))])
    ) as (_, delivered):
        delivered.wait_for(lambda: delivered.state == {} and len(delivered.batches) == 2)


def test_something_may_stand_in_for_an_object_whose_projection_fails() -> None:
    odd = an_object("odd", 8)
    del odd["value"]
    delivered = Delivered()
    source = Source(resource=PODS, project=value_of, stand_in=lambda key: f"instead of {key[1]}")
    with WatchApi([a_list(odd, version=7)]) as api:
        reader = Reader(api.client, source, delivered, QUICK)
        reader.start()
        delivered.wait_for(lambda: bool(delivered.state))
        reader.stop()
        reader.join(20)
    assert delivered.state == {("models", "odd"): "instead of odd"}


def test_an_object_that_cannot_be_decoded_concerns_that_object_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    odd = (
        b'{"metadata":{"name":"odd","namespace":"models","resourceVersion":"5"},"value":'
        + b"1" * 5000
        + b"}"
    )
    a, b = (json.dumps(an_object(name, 5, 1)).encode() for name in "ab")
    whole = b'{"metadata":{"resourceVersion":"7"},"items":[' + a + b"," + odd + b"," + b + b"]}"
    api = WatchApi(
        [Reply(parts=[whole])],
        [a_watch(b'{"type":"ADDED","object":' + odd + b"}\n", ("ADDED", an_object("c", 9, 1)))],
    )
    with reading(api) as (reader, delivered):
        delivered.wait_for(lambda: C in delivered.state)
    assert delivered.state == {A: 1, B: 1, C: 1}
    assert reader.counts.unreadable == 2
    assert len(caplog.records) == 1
    assert caplog.records[0].getMessage().startswith("pods models/odd cannot be read: ")


def test_an_object_that_is_nested_too_deeply_is_kept_like_any_other() -> None:
    managed = b'{"f:a":' * 5000 + b"{}" + b"}" * 5000
    deep = json.dumps(an_object("a", 8, 1)).encode()[:-1] + b',"managedFields":' + managed + b"}"
    listed = Reply(parts=[b'{"metadata":{"resourceVersion":"7"},"items":[' + deep + b"]}"])
    changed = deep.replace(b'"value": 1', b'"value": 2')
    with reading(
        WatchApi([listed], [a_watch(b'{"type":"MODIFIED","object":' + changed + b"}\n")])
    ) as (reader, delivered):
        delivered.wait_for(lambda: delivered.state == {A: 2})
    assert (delivered.batches[0], reader.counts.unreadable) == (({A: 1}, True), 0)


def test_a_fault_of_ours_ends_in_a_new_list() -> None:
    class Faulty(Delivered):
        def __call__(self, changes: Any, listed: bool) -> None:  # noqa: FBT001
            if not self.batches:
                self.batches.append(({}, listed))
                raise RuntimeError("a fault")
            super().__call__(changes, listed)

    api, delivered = (
        WatchApi([a_list(version=7), a_list(an_object("a", 5, 1), version=9)]),
        Faulty(),
    )
    with api:
        reader = Reader(api.client, Source(resource=PODS, project=value_of), delivered, QUICK)
        reader.start()
        delivered.wait_for(lambda: delivered.state == {A: 1})
        reader.stop()
        reader.join(20)
