"""The report in a real browser: it needs no network, fits every screen, moves by the keyboard, and
complains of nothing.
"""

import asyncio
import io
import json
import os
import re
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from shardwright.cli.main import main
from tests.browser.chromium import Page, a_page, in_browser
from tests.support.hostile_text import HOSTILE

ROOT = Path(__file__).parents[2]
NODES = ("--nodes", str(ROOT / "examples" / "fleet" / "nodes.yaml"))
IMAGES = ROOT / "docs" / "images"
WIDTHS = (375, 768, 1280, 1920)
HEIGHT = 900
IMAGE_MAX_BYTES = 400_000
RIGHT, LEFT, ENTER = ("ArrowRight", 39), ("ArrowLeft", 37), ("Enter", 13)

MARKUP = (
    "<img src=x onerror=document.title='owned'>",
    "</script><script>document.title='owned'",
    "'\"><svg onload=alert(1)>",
)


@cache
def printed(*words: str) -> str:
    """Return what a command prints; a report takes seconds, and is the same each time."""
    with redirect_stdout(io.StringIO()) as out:
        main(list(words))
    return out.getvalue()


def report(folder: Path, *words: str) -> str:
    """Write a report and return its address."""
    file = folder / "plan.html"
    file.write_text(printed("report", *words))
    return file.as_uri()


def explanation(*words: str) -> Any:
    """Return the explanation that is printed as JSON."""
    return json.loads(printed("explain", *words, "-o", "json"))["items"][0]["explanation"]


def sample(name: str) -> tuple[str, ...]:
    """Return the words for a sample on the example fleet."""
    return ("-f", str(ROOT / "manifests" / "samples" / f"{name}.yaml"), *NODES)


@pytest.mark.parametrize("name", ["llama-405b", "deepseek-v3-rack", "llama-405b-l40s"])
def test_the_report_fits_every_screen_in_light_and_dark(tmp_path: Path, name: str) -> None:
    url = report(tmp_path, *sample(name))

    async def look(page: Page) -> list[tuple[int, bool, int]]:
        seen = []
        for width in WIDTHS:
            for dark in (False, True):
                await page.look(width, HEIGHT, dark=dark)
                await page.open(url)
                seen.append((width, dark, await page.run("document.documentElement.scrollWidth")))
        return seen

    assert in_browser(tmp_path, look) == [
        (width, dark, width) for width in WIDTHS for dark in (False, True)
    ]


def test_ink_and_page_differ_enough_in_light_and_dark(tmp_path: Path) -> None:
    """Contrast of WCAG: 4.5 to 1 for text."""
    url = report(tmp_path, *sample("llama-405b"))
    colours = """(() => {
      const probe = document.createElement("canvas").getContext("2d");
      const of = (name) => {
        probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
        const parts = probe.fillStyle.slice(1).match(/../g).map((hex) => parseInt(hex, 16) / 255);
        const [r, g, b] = parts.map((part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const contrast = (one, other) => {
        const [dark, light] = [of(one), of(other)].sort((a, b) => a - b);
        return (light + 0.05) / (dark + 0.05);
      };
      return Math.min(...["--ink", "--soft", "--accent", "--warn"].flatMap((ink) =>
        ["--page", "--card"].map((ground) => contrast(ink, ground))));
    })()"""

    async def look(page: Page) -> list[float]:
        seen = []
        for dark in (False, True):
            await page.look(1280, HEIGHT, dark=dark)
            await page.open(url)
            seen.append(await page.run(colours))
        return seen

    assert min(in_browser(tmp_path, look)) >= 4.5


def test_the_keyboard_moves_the_load_and_the_page_says_what_would_be_planned(
    tmp_path: Path,
) -> None:
    url = report(tmp_path, *sample("llama-405b"))

    async def look(page: Page) -> tuple[str, str, str, bool]:
        await page.look(1280, HEIGHT)
        await page.open(url)
        before = await page.run("document.getElementById('points').innerHTML")
        await page.run("document.querySelector('.sliders input').focus()")
        await page.press(*RIGHT)
        moved = await page.run("document.querySelector('.sliders output').textContent")
        said = await page.run("document.getElementById('what-if').innerText")
        assert await page.run("document.getElementById('points').innerHTML") != before
        await page.press(*LEFT)
        back = await page.run("document.getElementById('points').innerHTML")
        return (
            moved,
            said,
            await page.run("document.querySelector('#reset').disabled.toString()"),
            back == before,
        )

    moved, said, at_home, restored = in_browser(tmp_path, look)
    manifest = tmp_path / "moved.yaml"
    text = (ROOT / "manifests" / "samples" / "llama-405b.yaml").read_text()
    manifest.write_text(re.sub(r"concurrency: \d+", "concurrency: 128", text))
    facts = {
        fact["label"]: fact["value"]
        for fact in explanation("-f", os.fspath(manifest), *NODES)["facts"]
    }

    assert (moved, at_home, restored) == ("128", "true", True)
    output = facts["Can serve"].partition(" (")[0]
    assert said == f"TP8·PP2\non 16 GPUs of {facts['Pool']}: {output}, {facts['Latency']}."


def test_a_reason_filters_the_table_by_the_keyboard(tmp_path: Path) -> None:
    url = report(tmp_path, *sample("llama-405b"))
    told = explanation(*sample("llama-405b"))
    first = told["exclusions"][0]

    async def look(page: Page) -> tuple[int, int, str]:
        await page.look(1280, HEIGHT)
        await page.open(url)
        visible = (
            "[...document.querySelectorAll('#rows tbody tr')].filter((row) => "
            "row.offsetParent).length"
        )
        everything = await page.run(visible)
        await page.run("document.querySelector('button.filter').focus()")
        await page.press(*ENTER)
        return (
            everything,
            await page.run(visible),
            await page.run("document.activeElement.getAttribute('aria-pressed')"),
        )

    assert in_browser(tmp_path, look) == (len(told["candidates"]), first["count"], "true")


def test_every_stop_of_the_keyboard_has_a_name_and_every_drawing_words(tmp_path: Path) -> None:
    url = report(tmp_path, *sample("deepseek-v3-rack"))
    nameless = """[
      ...document.querySelectorAll("a[href], button, input, summary, [tabindex='0'], svg[role=img]")
    ].filter((one) => !one.getAttribute("aria-label") && !one.textContent.trim() && !one.labels?.length)
      .map((one) => one.outerHTML)"""

    async def look(page: Page) -> Any:
        await page.look(1280, HEIGHT)
        await page.open(url)
        return await page.run(nameless)

    assert in_browser(tmp_path, look) == []


def test_names_that_mean_harm_do_nothing(tmp_path: Path) -> None:
    nodes = []
    for index, text in enumerate(
        (
            *HOSTILE.values(),
            "<img src=x onerror=document.title='owned'>",
            "</script><script>document.title='owned'",
        )
    ):
        labels = {
            "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
            "nvidia.com/gpu.count": "8",
            "nvidia.com/gpu.memory": "81559",
        }
        taint = {"key": text, "value": text, "effect": "NoSchedule"}
        status = {
            "allocatable": {"nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        spec = {"taints": [taint]} if index % 2 else {}
        nodes.append(
            {
                "kind": "Node",
                "metadata": {"name": text, "labels": labels},
                "spec": spec,
                "status": status,
            }
        )
    file = tmp_path / "nodes.json"
    file.write_text(json.dumps({"kind": "List", "items": nodes}))
    url = report(tmp_path, "meta-llama/Llama-3.1-405B-Instruct", "--nodes", os.fspath(file))

    async def look(page: Page) -> tuple[str, int]:
        await page.look(1280, HEIGHT)
        await page.open(url)
        return await page.run("document.title"), await page.run(
            "document.querySelectorAll('img').length"
        )

    assert in_browser(tmp_path, look) == ("llama-3-1-405b-instruct - shardwright", 0)


def test_the_pictures_of_the_documents_are_of_this_page(
    tmp_path: Path, *, update_goldens: bool
) -> None:
    """Fonts differ from machine to machine, so what is compared is that the pictures are there, and
    small.
    """
    if update_goldens:
        asyncio.run(_pictures(tmp_path))
    sizes = {file.name: file.stat().st_size for file in IMAGES.glob("report-*.png")}
    assert sorted(sizes) == [
        "report-dark.png",
        "report-light.png",
        "report-phone.png",
        "report-tradeoff.png",
    ]
    assert max(sizes.values()) < IMAGE_MAX_BYTES


async def _pictures(folder: Path) -> None:
    shots = (
        ("report-light", "llama-405b", 1280, False, 0, 1320),
        ("report-dark", "deepseek-v3-rack", 1280, True, 0, 1320),
        ("report-phone", "llama-405b", 375, False, 0, 1500),
        ("report-tradeoff", "deepseek-v3-rack", 1280, False, "#tradeoff-section", 0),
    )
    async with a_page(folder / "pictures") as page:
        for name, model, width, dark, place, height in shots:
            url = report(folder, *sample(model))
            await page.look(width, HEIGHT, dark=dark)
            await page.open(url)
            clip: dict[str, Any] = {"x": 0, "y": place, "width": width, "height": height}
            if isinstance(place, str):
                await page.run(
                    f"globalThis.part = document.querySelector('{place}').getBoundingClientRect()"
                )
                top, tall = await page.run("[part.y + scrollY, part.height]")
                clip |= {"y": top - 16, "height": tall + 32}
            (IMAGES / f"{name}.png").write_bytes(await page.picture(clip))
