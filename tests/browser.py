"""A headless browser for tests: Chromium's DevTools protocol over a pipe, no package needed."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from helpers import time_scale

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")

#: Seconds for one answer; only a limit against hanging.
PATIENCE = 240.0

_OPTIONS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",  # root, as in containers, cannot use the sandbox
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--metrics-recording-only",
    "--no-default-browser-check",
    "--no-first-run",
    "--password-store=basic",
    "--use-mock-keychain",
    "--hide-scrollbars",
)


def find_browser() -> str | None:
    """The path of a Chromium, None if there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One browser with one page.  ``console`` and ``requests`` collect what the page did."""

    def __init__(self, process: subprocess.Popen[bytes], write: int, read: int) -> None:
        self._process = process
        self._write = write
        self._read = read
        self._left = b""
        self._number = 0
        self._session: str | None = None
        self.console: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        until = time.monotonic() + PATIENCE * time_scale()
        while True:
            answer = self._receive(until)
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return dict(answer["result"])
            self._event(answer)

    def _receive(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._left:
            ready, _, _ = select.select([self._read], [], [], max(0, until - time.monotonic()))
            assert ready, "the browser does not answer"
            data = os.read(self._read, 1 << 20)
            assert data, "the browser has ended"
            self._left += data
        message, _, self._left = self._left.partition(b"\0")
        return dict(json.loads(message))

    def _event(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        if event["method"] == "Runtime.consoleAPICalled":
            texts = [str(arg.get("value", arg.get("description"))) for arg in params["args"]]
            self.console.append(f"{params['type']}: {' '.join(texts)}")
        elif event["method"] == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.console.append(
                f"exception: {details['text']} {details.get('exception', {}).get('description')}"
            )
        elif event["method"] == "Log.entryAdded":
            self.console.append(f"{params['entry']['level']}: {params['entry']['text']}")
        elif event["method"] == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif event["method"] == "Page.javascriptDialogOpening":
            self.console.append(f"dialog: {params['message']}")
            self.call("Page.handleJavaScriptDialog", accept=False)

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the viewport and the system's colours."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, path: Path, mark: str = "ready") -> None:
        """Open a report and wait until its page has set the mark."""
        self.call("Page.navigate", url=path.absolute().as_uri())
        self.wait(f"document.documentElement?.hasAttribute('data-{mark}')")

    def wait(self, condition: str) -> None:
        """Wait until an expression is true."""
        until = time.monotonic() + PATIENCE * time_scale()
        while not self.run(f"Boolean({condition})"):
            assert time.monotonic() < until, f"never true: {condition}; {self.console}"
            time.sleep(0.02)

    def run(self, code: str) -> Any:
        """Return the value of an expression; await promises."""
        answer = self.call(
            "Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def key(self, key: str) -> None:
        """Press and release a key."""
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def click(self, x: float, y: float) -> None:
        """Click at a place of the viewport."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1
            )  # fmt: skip

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """Write a picture of the whole page, or of the visible part."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        """End the browser and its children."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@contextmanager
def browser() -> Iterator[Browser]:
    """Yield a running browser with a separate profile folder."""
    command = find_browser()
    assert command is not None
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        # The protocol uses descriptors 3 and 4; a shell can move ours there.
        redirect = f'exec "$@" 3<&{to_read} 4>&{from_write}'
        process = subprocess.Popen(
            ["bash", "-c", redirect, "browser", command, *_OPTIONS, f"--user-data-dir={folder}"],
            pass_fds=(to_read, from_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": folder},
            start_new_session=True,
        )
        os.close(to_read)
        os.close(from_write)
        started = None
        try:
            started = Browser(process, to_write, from_read)
            yield started
        finally:
            if started is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            else:
                started.close()
            os.close(to_write)
            os.close(from_read)
