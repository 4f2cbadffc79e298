"""The list of plans and a plan of the operator in a real browser: asked for a token, by its own
dialog.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from shardwright.api.record import PlanRecord
from shardwright.cluster.client import Client
from shardwright.cluster.permissions import PLANS_AUDIENCE
from shardwright.controller.http_server import HttpServer
from shardwright.controller.plans import PLANS_PATH, Plans, Sources
from shardwright.controller.queue import Key
from shardwright.pages.page import Listed
from shardwright.pipeline.assembly import plan_serving, record_of
from shardwright.resolving.subject import Subject
from tests.browser.chromium import Page, in_browser
from tests.support.builders_nodes import h100_nodes
from tests.support.builders_subject import LARGE, a_subject, stock
from tests.support.hostile_text import HOSTILE
from tests.support.scripted_api import Answer, ScriptedApi

WIDTHS = (375, 768, 1280, 1920)
WHO = {
    "status": {"authenticated": True, "audiences": [PLANS_AUDIENCE], "user": {"username": "mara"}}
}
ROWS = [
    Listed(
        namespace="team",
        name=f"llama-{index}",
        model=text,
        ready="Serving",
        plan="16 x NVIDIA-H100-80GB-HBM3",
    )
    for index, text in enumerate(
        ("meta-llama/Llama-3.1-405B-Instruct", "<img src=x>", *HOSTILE.values())
    )
]


async def _rows() -> Sequence[Listed]:
    return ROWS


async def _plan(key: Key) -> tuple[Subject, PlanRecord] | None:
    del key
    subject = a_subject(**LARGE)
    record = record_of(subject, plan_serving(subject, stock(subject, h100_nodes(2))))
    return (subject, record) if record else None


@pytest.fixture
def address() -> Iterator[str]:
    """Where the pages of an operator are, to whom the API server lets see everything."""
    by_path = {
        "tokenreviews": Answer(201, WHO),
        "subjectaccessreviews": Answer(201, {"status": {"allowed": True}}),
    }
    api = ScriptedApi(Answer(404), by_path=by_path)
    client = Client(api.access(), threads=2, may_write=lambda: False)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    pages = Plans(client, Sources(models=_rows, plan=_plan), loop)
    server = HttpServer(pages.routes(), 0, "pages")
    yield f"127.0.0.1:{server.port}"
    server.stop()
    pages.stop()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
    client.close()
    api.stop()


def test_the_list_fits_every_screen_and_leads_to_a_plan(tmp_path: Path, address: str) -> None:
    url = f"http://me:a-token@{address}{PLANS_PATH}"

    async def look(page: Page) -> tuple[list[tuple[int, bool, int]], int, str]:
        page.admit(f"http://{address}/")
        page.admit(url)
        seen = []
        for width in WIDTHS:
            for dark in (False, True):
                await page.look(width, 900, dark=dark)
                await page.open(url)
                wide = await page.run("document.documentElement.scrollWidth")
                seen.append((width, dark, wide))
        rows = await page.run("document.querySelectorAll('tbody tr').length")
        await page.open(await page.run("document.querySelector('tbody a').href"))
        return seen, rows, await page.run("document.querySelector('h1').textContent")

    seen, rows, title = in_browser(tmp_path, look)

    assert seen == [(width, dark, width) for width in WIDTHS for dark in (False, True)]
    assert rows == len(ROWS)
    assert title == "llama"
