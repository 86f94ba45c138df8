"""A real browser: Debian's Chromium, headless.

It draws one page and ends (:func:`draw`), or does what a test says (:func:`browsing`), by the
protocol of its developer tools over two pipes, which needs no Python package and no port. Then it
ends with the pipes, so a test that is killed leaves none behind.
"""

from __future__ import annotations

import base64
import fcntl
import functools
import json
import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from adon.machine import packages

_FLAGS = (
    # Pages are our own; as root, or where user namespaces are not to be had, there is no sandbox.
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars", "--disable-dev-shm-usage",
    # Whatever is not this machine cannot be found: a page that needs the internet fails.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip
_LIMIT_S = 180.0  # nothing here takes nearly as long
_DRAWN_S = 240.0
KEYS = {
    "Tab": ("Tab", 9, ""), "Enter": ("Enter", 13, "\r"), "Space": (" ", 32, " "),
    "Escape": ("Escape", 27, ""), "ArrowRight": ("ArrowRight", 39, ""),
    "ArrowLeft": ("ArrowLeft", 37, ""), "ArrowDown": ("ArrowDown", 40, ""),
    "Home": ("Home", 36, ""),
}  # fmt: skip


class BrowserError(Exception):
    """The browser refused, or what was waited for did not come."""


@functools.cache
def chromium() -> str:
    """The machine's Chromium, or the private one. Raises MissingError when neither can be had."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if program is not None:
        return program
    return str(packages.ensure("chromium", progress=print) / "wrap" / "chromium-headless-shell")


def _command(folder: Path, *words: str) -> tuple[list[str], dict[str, str]]:
    """How Chromium is started with its profile, its settings and its caches in ``folder``."""
    environment = {**os.environ, "HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
    return [chromium(), *_FLAGS, f"--user-data-dir={folder / 'profile'}", *words], environment


def draw(folder: Path, url: str, *words: str) -> str:
    """Chromium loads one page, does what ``words`` say (its options) and ends: what it printed."""
    command, environment = _command(folder, *words, url)
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=_DRAWN_S, check=False
    )
    if done.returncode != 0:
        raise BrowserError(f"Chromium ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


class Page:
    """One tab. ``problems`` are what it wrote as errors: exceptions, refusals of its policy."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session
        self.problems: list[str] = []
        self.requests: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **words: Any) -> dict[str, Any]:
        """One command of the protocol."""
        return self._browser.call(method, self._session, **words)

    def look(
        self, width: int = 1280, height: int = 900, scheme: str = "light", touch: bool = False
    ) -> None:
        """The size of the window in pixels, and which colours the user prefers."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=touch,
        )  # fmt: skip
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        features = [{"name": "prefers-color-scheme", "value": scheme}, still]
        self.call("Emulation.setEmulatedMedia", features=features)

    def go(self, url: str) -> None:
        """Open an address."""
        self.call("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """The value of an expression on the page, of a promise what it becomes."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            exception = answer["exceptionDetails"]
            raise BrowserError(
                exception.get("exception", {}).get("description") or exception["text"]
            )
        return answer["result"].get("value")

    def wait(self, script: str, limit_s: float = _LIMIT_S) -> None:
        """Until an expression is true."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            with suppress(BrowserError):  # what it looks at may not be there yet
                if self.run(f"Boolean({script})"):
                    return
            self._browser.listen(0.05)
        text = self.run("document.body.innerText")
        said = self.problems[:3]
        raise BrowserError(f"{script} did not come within {limit_s} s; {said}; {text[:2000]}")

    def text(self, selector: str = "main") -> str:
        """What can be read there."""
        return str(self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def press(self, key: str, times: int = 1) -> None:
        """A key, as the keyboard sends it."""
        name, code, text = KEYS.get(key, (key, ord(key.upper()[0]), key))
        common = {"key": name, "code": key, "windowsVirtualKeyCode": code}
        for _ in range(times):
            self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
            self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, words: str) -> None:
        """Text into what has the focus."""
        self.call("Input.insertText", text=words)

    def click(self, selector: str) -> None:
        """The middle of an element, as soon as it is there with nothing over it. To look where it
        is and to click is one step, for a live page may move it between two."""
        self.wait(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect();"
            " const [clientX, clientY] = [r.left + r.width / 2, r.top + r.height / 2];"
            " const top = document.elementFromPoint(clientX, clientY);"
            " if (!e.contains(top)) return false; e.focus?.(); top.dispatchEvent(new MouseEvent("
            "'click', {bubbles: true, cancelable: true, clientX, clientY})); return true })()"
        )

    def shot(self, file: Path, whole: bool = True) -> Path:
        """A picture of the window, or of the whole page, as PNG."""
        options: dict[str, Any] = {"format": "png"}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            options["captureBeyondViewport"] = True
            options["clip"] = {
                "x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 6000),
                "scale": 1,
            }  # fmt: skip
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", **options)["data"]))
        return file

    def hear(self, event: Mapping[str, Any]) -> None:
        """An event of the protocol."""
        method, params = event["method"], event.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            entry = params["entry"]
            self.problems.append(f"{entry['text']} {entry.get('url', '')}".strip())
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])


class Browser:
    """A running Chromium."""

    def __init__(self, folder: Path) -> None:
        command, environment = _command(folder, "--remote-debugging-pipe", "about:blank")
        # Descriptors of ours must not be 3 and 4, which the browser's are to be.
        ours, theirs = _pipe(), _pipe()
        with (folder / "chromium.log").open("wb") as log:
            self._pid = os.posix_spawn(
                command[0],
                command,
                environment,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, log.fileno(), 1),
                    (os.POSIX_SPAWN_DUP2, log.fileno(), 2),
                    (os.POSIX_SPAWN_DUP2, ours[0], 3),
                    (os.POSIX_SPAWN_DUP2, theirs[1], 4),
                ],
                setsid=True,
            )
        os.close(ours[0])
        os.close(theirs[1])
        self._out, self._in = ours[1], theirs[0]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._in, selectors.EVENT_READ)
        self._rest = b""
        self._number = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self._pages: dict[str, Page] = {}

    def page(self) -> Page:
        """A new tab."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._pages[session] = page = Page(self, session)
        return page

    @contextmanager
    def tab(self) -> Iterator[Page]:
        """A new tab that is closed again: a browser keeps few lines to one service."""
        page = self.page()
        try:
            yield page
        finally:
            page.call("Page.close")

    def call(self, method: str, session: str = "", **words: Any) -> dict[str, Any]:
        """One command, and its answer. Raises BrowserError."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": words}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + _LIMIT_S
        while number not in self._answers:
            if time.monotonic() > end:
                raise BrowserError(f"no answer to {method}")
            self.listen(1.0)
        answer = self._answers.pop(number)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def listen(self, seconds: float) -> None:
        """Take what the browser says."""
        if not self._selector.select(seconds):
            return
        got = os.read(self._in, 1 << 20)
        if not got:
            raise BrowserError("the browser has ended")
        *whole, self._rest = (self._rest + got).split(b"\0")
        for message in map(json.loads, whole):
            if "id" in message:
                self._answers[message["id"]] = message
            elif message.get("sessionId") in self._pages:
                self._pages[message["sessionId"]].hear(message)

    def close(self) -> None:
        """End it, and wait for the end."""
        os.close(self._out)
        self._selector.close()
        os.close(self._in)
        os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def _pipe() -> tuple[int, int]:
    read, write = os.pipe()
    high = tuple(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100) for fd in (read, write))
    os.close(read)
    os.close(write)
    return high[0], high[1]


@contextmanager
def browsing(folder: Path) -> Iterator[Browser]:
    """A browser with its profile in ``folder``."""
    browser = Browser(folder)
    try:
        yield browser
    finally:
        browser.close()
