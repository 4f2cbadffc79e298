"""kopf's watch of ShardedModels: what of them it is handed, and every fault that ends it, after
which it begins anew.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import repeat
from typing import Any

import pytest

from shardwright.cluster.access import Access
from shardwright.cluster.client import Client
from shardwright.cluster.sources import project_model
from shardwright.controller.watches import Watches
from tests.harness.fault_proxy import Fault, FaultProxy, When
from tests.support.scripted_api import Answer, ScriptedApi

API = "shardwright.io/v1alpha1"
MODELS = f"/apis/{API}/shardedmodels"
LISTS = {"kind": "ShardedModelList", "apiVersion": API, "metadata": {"resourceVersion": "7"}}
VERBS = ["get", "list", "watch", "patch"]
SERVED = {
    "name": "shardedmodels",
    "singularName": "shardedmodel",
    "namespaced": True,
    "kind": "ShardedModel",
    "verbs": VERBS,
}
NAMESPACES = {
    "name": "namespaces",
    "singularName": "namespace",
    "namespaced": False,
    "kind": "Namespace",
    "verbs": VERBS,
}


def json_of(body: Any) -> Answer:
    return Answer(body=json.dumps(body).encode(), headers=(("Content-Type", "application/json"),))


def a_listed_model(name: str) -> dict[str, Any]:
    return {
        "apiVersion": API,
        "kind": "ShardedModel",
        "metadata": {"name": name, "namespace": "models", "uid": name},
    }


VERSION = {"groupVersion": API, "version": "v1alpha1"}
ANSWERS = {
    "watch=": Answer(body=b"", headers=(("Content-Type", "application/json"),)),
    MODELS: json_of({**LISTS, "items": [a_listed_model("large")]}),
    f"/apis/{API}": json_of({"resources": [SERVED]}),
    "/apis": json_of(
        {"groups": [{"name": "shardwright.io", "versions": [VERSION], "preferredVersion": VERSION}]}
    ),
    "/api/v1": json_of({"resources": [NAMESPACES]}),
    "/api": json_of({"versions": ["v1"]}),
}
"""An API server with one model, whose watches end at once, by part of a path."""


@pytest.fixture
def proxy() -> Iterator[FaultProxy]:
    """That API server, behind a proxy."""
    api = ScriptedApi(json_of({}), by_path=ANSWERS)
    with FaultProxy(api.access().configuration.host) as proxy:
        yield proxy
    api.stop()


class Heard:
    """What the watch has told of, counted."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.models: list[Any] = []
        self._news = threading.Condition()

    def __call__(self, model: Any, gone: bool) -> None:  # noqa: FBT001  # as it is told
        with self._news:
            self.models.append(dict(model))
            self.names.append(model["metadata"]["name"] + (" gone" if gone else ""))
            self._news.notify_all()

    def wait(self, count: int) -> None:
        """Wait until so much was told since the start."""
        with self._news:
            assert self._news.wait_for(lambda: len(self.names) >= count, 20), self.names


@contextmanager
def watching(proxy: FaultProxy, access: Access) -> Iterator[tuple[Watches, Heard]]:
    access.configuration.host = proxy.url
    heard = Heard()
    client = Client(access, threads=1)
    watches = Watches(client, access, heard, repeat(0.01))
    watches.start()
    try:
        yield watches, heard
    finally:
        watches.stop()
        watches.join(20)
        client.close()
        assert not watches.is_alive()


@pytest.fixture
def access() -> Iterator[Access]:
    api = ScriptedApi(Answer())
    yield api.access()
    api.stop()


GROUP = ("GET", f"/apis/{API}")
LIST = ("GET", MODELS)
STREAM = ("WATCH", MODELS)
ENDS: dict[str, tuple[tuple[str, str], Callable[[When], Fault]]] = {
    "a group that is not served yet": (GROUP, lambda when: when.answer(404)),
    "an ERROR in the watch": (STREAM, lambda when: when.watch_error(500)),
    "a watch that is no kind of the API server's any more": (STREAM, lambda when: when.answer(404)),
    "a page instead of a list": (LIST, lambda when: when.html(200)),
    "a list that breaks off": (LIST, lambda when: when.truncate(30)),
    "a list of a kind that is not served": (LIST, lambda when: when.answer(404)),
    "credentials that are refused": (LIST, lambda when: when.answer(401)),
}


@pytest.mark.parametrize("what", ENDS)
def test_the_watch_begins_anew_whatever_has_ended_it(
    proxy: FaultProxy, access: Access, what: str
) -> None:
    where, inject = ENDS[what]
    fault = inject(proxy.when(*where, times=1))
    with watching(proxy, access) as (watches, heard):
        heard.wait(2 if where == STREAM else 1)
        assert watches.is_alive()
    assert fault.hits == [" ".join(where)]
    assert set(heard.names) == {"large"}


def test_why_it_has_ended_is_said(
    proxy: FaultProxy, access: Access, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.when(*STREAM, times=1).watch_error(500)
    with caplog.at_level(logging.ERROR, "shardwright"), watching(proxy, access) as (_, heard):
        heard.wait(2)
    (said,) = [
        record.getMessage() for record in caplog.records if record.name.startswith("shardwright")
    ]
    assert said.startswith("the watch of ShardedModels has ended and begins anew: WatchingError: ")


def test_the_watch_hides_nothing_that_a_thread_needs_to_be_waited_for(access: Access) -> None:
    client = Client(access, threads=1)
    own = vars(Watches(client, access, Heard())).keys() - vars(threading.Thread()).keys()
    client.close()

    assert own.isdisjoint(dir(threading.Thread))


A_LARGE_MODEL = {
    **a_listed_model("large"),
    "spec": {"model": {"id": "us/ours", "config": {"k": [{}] * 100_000}}, "mode": "PlanOnly"},
}
A_LARGE_MODEL["metadata"] |= {"resourceVersion": "8", "managedFields": [{"f:k": {}}]}


def stream_of(*events: tuple[str, Any]) -> Answer:
    body = b"".join(
        json.dumps({"type": kind, "object": content}).encode() + b"\n" for kind, content in events
    )
    return Answer(body=body, headers=(("Content-Type", "application/json"),), chunked=True)


@contextmanager
def told_by(listed: Any, *events: tuple[str, Any]) -> Iterator[Heard]:
    """What is told by an API server with this LIST and these events of a watch."""
    api = ScriptedApi(
        json_of({}), by_path={**ANSWERS, "watch=": stream_of(*events), MODELS: json_of(listed)}
    )
    with (
        FaultProxy(api.access().configuration.host) as proxy,
        watching(proxy, api.access()) as (_, heard),
    ):
        yield heard
    api.stop()


def test_of_lists_and_events_nothing_is_handed_over_that_is_not_kept() -> None:
    with told_by(
        {**LISTS, "items": [A_LARGE_MODEL]}, ("MODIFIED", A_LARGE_MODEL), ("DELETED", A_LARGE_MODEL)
    ) as heard:
        heard.wait(3)
    assert heard.models[:3] == [project_model(A_LARGE_MODEL)] * 3
    assert heard.names[:3] == ["large", "large", "large gone"]


def test_an_event_that_nothing_can_be_made_of_hides_none_of_the_others() -> None:
    endless = {**a_listed_model("endless"), "spec": {"replicas": 10**5_000}}
    with_digits = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        events = stream_of(("ADDED", endless), ("ADDED", a_listed_model("next")))
    finally:
        sys.set_int_max_str_digits(with_digits)
    api = ScriptedApi(
        json_of({}), by_path={**ANSWERS, "watch=": events, MODELS: json_of({**LISTS, "items": []})}
    )
    with (
        FaultProxy(api.access().configuration.host) as proxy,
        watching(proxy, api.access()) as (_, heard),
    ):
        heard.wait(1)
    assert set(heard.names) == {"next"}
    api.stop()


@pytest.mark.parametrize("items", [[], None], ids=["an empty array", "no array"])
def test_a_list_of_no_models_is_an_empty_one(items: list[Any] | None) -> None:
    with told_by({**LISTS, "items": items}, ("ADDED", a_listed_model("first"))) as heard:
        heard.wait(1)
    assert heard.names[0] == "first"
