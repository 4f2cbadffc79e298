"""A real Chromium without a window, spoken to by its own protocol (Chrome DevTools): pages, keys,
screenshots, complaints.
"""

from __future__ import annotations

import asyncio
import base64
import io
import os
import shutil
import subprocess
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import aiohttp

from tests.harness.errors import HarnessError

PACKAGES: Final = ("chromium", "fonts-inter")
FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-port=0",
)
LISTENS: Final = "DevTools listening on "
END_SECONDS: Final = 10
ANSWER_SECONDS: Final = 60.0
MESSAGE_MAX_BYTES: Final = 64 << 20  # of one answer: a screenshot


def install() -> None:
    """Install Chromium from Debian, unless it is there.

    Raises:
        HarnessError: It is not there and cannot be installed.
    """
    if shutil.which("chromium"):
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise HarnessError(
            "these tests need chromium on the PATH: install it, or run them as root on Debian"
        )
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update"],
        ["apt-get", "install", "--yes", "--no-install-recommends", *PACKAGES],
    ):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise HarnessError(
                f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()[-500:]}"
            )


T = TypeVar("T")


class Page:
    """One tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, session: str) -> None:
        self._socket, self._session, self._number = socket, session, 0
        self._last = ""
        self._own: tuple[str, ...] = ("file:", "data:")
        self.complaints: list[
            str
        ] = []  #: what the page and the browser said of errors and warnings

    async def call(self, method: str, **parameters: Any) -> Mapping[str, Any]:
        """Return the answer to one command."""
        self._number += 1
        number = self._number
        await self._socket.send_json(
            {"id": number, "method": method, "params": parameters, "sessionId": self._session}
        )
        async with asyncio.timeout(ANSWER_SECONDS):
            while True:
                message = await self._socket.receive_json()
                if message.get("id") == number and message.get("sessionId") == self._session:
                    if "error" in message:
                        raise HarnessError(f"{method}: {message['error']}")
                    return dict(message["result"])
                self._listen(message)

    def _listen(self, message: Mapping[str, Any]) -> None:
        method = message.get("method")
        self._last = method if method == "Page.loadEventFired" else self._last
        match method:
            case "Runtime.exceptionThrown":
                self.complaints.append(str(message["params"]["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if message["params"]["type"] in {
                "error",
                "warning",
                "assert",
            }:
                self.complaints.append(str(message["params"]["args"]))
            case "Log.entryAdded" if message["params"]["entry"]["level"] in {"error", "warning"}:
                self.complaints.append(str(message["params"]["entry"]))
            case "Network.requestWillBeSent":
                url = message["params"]["request"]["url"]
                if not url.startswith(self._own):
                    self.complaints.append(f"asked for {url}")

    def admit(self, address: str) -> None:
        """Take requests to an address for no complaint."""
        self._own = (*self._own, address)

    async def open(self, url: str) -> None:
        """Load a page and wait until its script has run."""
        await self.call("Page.navigate", url=url)
        await self._event("Page.loadEventFired")

    async def _event(self, name: str) -> None:
        async with asyncio.timeout(ANSWER_SECONDS):
            while self._last != name:
                self._listen(await self._socket.receive_json())
        self._last = ""

    async def look(self, width: int, height: int, *, dark: bool = False) -> None:
        """Give the window a size and a colour scheme."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = "dark" if dark else "light"
        features = [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        await self.call("Emulation.setEmulatedMedia", features=features)

    async def run(self, script: str) -> Any:
        """Return the value of an expression."""
        answer = await self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise HarnessError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    async def press(self, key: str, code: int) -> None:
        """Press a key and let it go."""
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            await self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                **text,
            )

    async def picture(self, clip: Mapping[str, float]) -> bytes:
        """Return a screenshot of a part of the page, as PNG."""
        part = {"clip": {**clip, "scale": 1}, "captureBeyondViewport": True}
        return base64.b64decode(
            (await self.call("Page.captureScreenshot", format="png", **part))["data"]
        )


def in_browser(folder: Path, look: Callable[[Page], Awaitable[T]]) -> T:
    """Return what a look at a page of a fresh browser gives; nothing may have been complained
    of.
    """

    async def run() -> T:
        async with a_page(folder / "profile") as page:
            seen = await look(page)
            assert page.complaints == []
            return seen

    return asyncio.run(run())


@asynccontextmanager
async def a_page(profile: Path) -> AsyncIterator[Page]:
    """Start a browser with a profile of its own and yield a tab."""
    with _started(profile) as address:
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(address, max_msg_size=MESSAGE_MAX_BYTES) as socket,
        ):
            target = (await _first(socket, 1, "Target.createTarget", url="about:blank"))["targetId"]
            attached = await _first(
                socket, 2, "Target.attachToTarget", targetId=target, flatten=True
            )
            page = Page(socket, attached["sessionId"])
            for domain in ("Page", "Runtime", "Log", "Network"):
                await page.call(f"{domain}.enable")
            yield page


async def _first(
    socket: aiohttp.ClientWebSocketResponse, number: int, method: str, **parameters: Any
) -> Mapping[str, Any]:
    await socket.send_json({"id": number, "method": method, "params": parameters})
    async with asyncio.timeout(ANSWER_SECONDS):
        while True:
            message = await socket.receive_json()
            if message.get("id") == number:
                return dict(message["result"])


@contextmanager
def _started(profile: Path) -> Iterator[str]:
    """Start a browser and yield where it listens, as it says itself."""
    command = [
        shutil.which("chromium") or "chromium",
        *FLAGS,
        f"--user-data-dir={profile}",
        "about:blank",
    ]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            said = ""
            for line in process.stderr or ():
                said += line
                if line.startswith(LISTENS):
                    break
            else:
                raise HarnessError(f"chromium ended before it listened: {said[-1000:]}")
            drain = threading.Thread(target=(process.stderr or io.StringIO()).read)
            drain.start()
            yield line.removeprefix(LISTENS).strip()
        finally:
            process.terminate()
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
