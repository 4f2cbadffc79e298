"""The thread that kopf watches on."""

from threading import Thread
from typing import Any, cast

from shardwright.controller.watches import Watches


def test_the_watch_hides_nothing_that_a_thread_needs_to_be_waited_for() -> None:
    watches = Watches(cast("Any", None), lambda _item, _gone: None, lambda: None)

    own = vars(watches).keys() - vars(Thread()).keys()

    assert own.isdisjoint(dir(Thread))
