"""A page in a real headless browser, controlled over its debugging port."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from waiting import wait_until

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-quic"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--remote-debugging-port=0", "--remote-allow-origins=*", "--window-size=1000,1060"),
)


@dataclass
class Page:
    """A tab of the browser."""

    socket: Any
    asked: int = 0

    def ask(self, method: str, **words: object) -> dict[str, Any]:
        """The browser's answer to a command of its protocol."""
        self.asked += 1
        self.socket.send(json.dumps({"id": self.asked, "method": method, "params": words}))
        while True:
            answer = json.loads(self.socket.recv())
            if answer.get("id") == self.asked:
                assert "error" not in answer, answer
                return dict(answer["result"])

    def value(self, expression: str) -> Any:
        """The value of an expression on the page, once its promise is kept."""
        words = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        return self.ask("Runtime.evaluate", **words)["result"].get("value")

    def picture(self, path: Path) -> None:
        """A PNG of the visible page."""
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot")["data"]))


@contextmanager
def opened(address: str, home: Path) -> Iterator[Page]:
    """Open the page at an address. The browser keeps its files in `home`."""
    websocket = pytest.importorskip("websocket")
    program = shutil.which("chromium") or pytest.skip("needs chromium: apt-get install chromium")
    words = [program, *FLAGS, f"--user-data-dir={home}", "about:blank"]
    browser = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        port_file = home / "DevToolsActivePort"
        wait_until(lambda: port_file.exists() and port_file.read_text())
        port = port_file.read_text().split()[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=10) as answer:
            tab = next(t for t in json.load(answer) if t["type"] == "page")
        page = Page(websocket.create_connection(tab["webSocketDebuggerUrl"], timeout=60))
        page.ask("Page.navigate", url=address)
        time.sleep(1)
        yield page
        page.socket.close()
    finally:
        browser.terminate()
        browser.wait(20)
