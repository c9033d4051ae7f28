"""A page visited in a real browser: headless Chromium, steered through its debugging pipe.

Unlike `chromium`, which lays out a file, it asks a server, follows links, fills in forms and presses keys.
"""

import base64
import fcntl
import json
import os
import subprocess
import threading
from pathlib import Path
from typing import Any, Self

from tests.support.chromium import SECONDS, chromium

MEASURE = """
(() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const numbers = (text) => text.match(/[0-9.]+/g).map(Number);
  const luminance = (rgb) => [0.2126, 0.7152, 0.0722].reduce((sum, weight, i) => {
    const c = rgb[i] / 255;
    return sum + weight * (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  }, 0);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const found = numbers(getComputedStyle(node).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const contrast = (node) => {
    const pair = [numbers(getComputedStyle(node).color), behind(node)].map(luminance);
    return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
  };
  const texts = all("body *").filter((node) =>
    [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim()));
  const ids = all("[id]").map((node) => node.id);
  const references = all("[aria-labelledby], [aria-describedby]").flatMap((node) =>
    [node.getAttribute("aria-labelledby"), node.getAttribute("aria-describedby")].filter(Boolean));
  return {
    title: document.title, text: document.body.innerText, width: document.documentElement.scrollWidth,
    landmarks: ["header", "nav", "main", "footer"].map((name) => all("body > " + name).length),
    headings: all("h1, h2, h3").map((node) => Number(node.tagName[1])),
    contrast: Math.min(...texts.map(contrast)),
    smallest: Math.min(...texts.map((node) => parseFloat(getComputedStyle(node).fontSize))),
    captionless: all("table").filter((node) => !node.querySelector(":scope > caption")).length,
    unscoped: all("th:not([scope])").length,
    unlabelled: all("input:not([type=hidden])").filter((node) => !node.labels.length).length,
    low: all("input:not([type=hidden]), button, body > nav a").filter((node) =>
      node.getBoundingClientRect().height < 43.9).length,
    unfocusable: all(".scroll, pre").filter((node) => node.tabIndex !== 0).length,
    twice: ids.filter((id, i) => ids.indexOf(id) !== i), missing: references.filter((id) => !ids.includes(id)),
    tags: [...new Set(all("*").map((node) => node.localName))],
    handlers: all("*").flatMap((node) => node.getAttributeNames()).filter((name) => name.startsWith("on")),
    loaded: performance.getEntriesByType("resource").map((entry) => new URL(entry.name).pathname),
    styled: getComputedStyle(document.querySelector("body > header")).maxWidth !== "none",
  };
})()
"""


class Browser:
    """One window of a browser without scripts. A context manager.

    Attributes:
        complaints: what the browser said of pages: blocked content, failed loads.
    """

    def __init__(self, directory: Path, *, scripts: bool = False) -> None:
        """Starts it with a profile of its own; nothing but this machine can be reached, and it ends after two minutes.

        Args:
            directory: for the profile.
            scripts: whether scripts of pages run.
        """
        self.complaints: list[str] = []
        self._events: list[dict[str, Any]] = []
        self._number = 0
        theirs, ours = os.pipe(), os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (theirs[0], ours[1])]
        command = [
            chromium(),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--no-first-run",
            "--disable-dev-shm-usage",
            "--disable-extensions",
            "--remote-debugging-pipe",
            "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
            f"--user-data-dir={directory / 'profile'}",
            "about:blank",
        ]
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{ends[0]} 4>&{ends[1]}', "bash", *command],
            pass_fds=ends,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._guard = threading.Timer(SECONDS, self._process.kill)
        self._guard.start()
        for end in (theirs[0], ours[1], *ends):
            os.close(end)
        self._out, self._in = os.fdopen(theirs[1], "wb", buffering=0), os.fdopen(ours[0], "rb")
        self._session: str | None = None
        target = next(one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Has the browser do something, and returns what came of it."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._out.write(json.dumps(message).encode() + b"\0")
        number = self._number
        while True:
            found = self._receive()
            if found.get("id") == number:
                assert "error" not in found, found
                return dict(found["result"])
            self._events.append(found)

    def _receive(self) -> dict[str, Any]:
        data = bytearray()
        while (byte := self._in.read(1)) != b"\0":
            assert byte, "the browser ended"
            data += byte
        found: dict[str, Any] = json.loads(data)
        if found.get("method") == "Log.entryAdded":
            entry = found["params"]["entry"]
            self.complaints.append(f"{entry['level']}: {entry['text']}")
        return found

    def _until(self, method: str) -> dict[str, Any]:
        while True:
            for place, event in enumerate(self._events):
                if event.get("method") == method:
                    return dict(self._events.pop(place)["params"])
            self._events.append(self._receive())

    def size(self, width: int, height: int = 900) -> None:
        """Makes the window this wide, in CSS pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def visit(self, address: str) -> None:
        """Goes to an address, and waits until the page is there."""
        self._events.clear()
        assert "errorText" not in self.call("Page.navigate", url=address), address
        self._until("Page.loadEventFired")

    def value(self, expression: str) -> Any:
        """Returns the value of an expression in the page; the browser's own tools may ask where pages may not."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def measure(self) -> dict[str, Any]:
        """Returns what `MEASURE` measures."""
        return dict(self.value(MEASURE))

    def press(self, key: str, *, loads: bool = False) -> None:
        """Presses Tab or Enter; waits for another page if that is what it leads to."""
        self._events.clear()
        code = {"Tab": 9, "Enter": 13}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, windowsVirtualKeyCode=code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=code)
        if loads:
            self._until("Page.loadEventFired")

    def type(self, text: str) -> None:
        """Types a text where the focus is."""
        self.call("Input.insertText", text=text)

    def picture(self, path: Path) -> None:
        """Writes the whole page as a picture."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self) -> None:
        """Ends the browser."""
        self._session = None
        self._out.write(b'{"id":0,"method":"Browser.close"}\0')
        self._process.wait(SECONDS)
        self._guard.cancel()
        self._out.close()
        self._in.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
