"""A page looked at in a real browser: headless Chromium lays it out, and a script around it measures what is there."""

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
SECONDS = 120

MEASURE = """
const frame = document.querySelector("iframe");
function luminance(rgb) {
  return [0.2126, 0.7152, 0.0722].reduce((sum, weight, i) => {
    const c = rgb[i] / 255;
    return sum + weight * (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  }, 0);
}
const numbers = (text) => text.match(/[0-9.]+/g).map(Number);
function background(view, node) {
  for (; node; node = node.parentElement) {
    const found = numbers(view.getComputedStyle(node).backgroundColor);
    if (found.length === 3 || found[3] > 0) return found;
  }
  return [255, 255, 255];
}
function contrast(view, node) {
  const pair = [numbers(view.getComputedStyle(node).color), background(view, node)].map(luminance);
  return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
}
function look() {
  const page = frame.contentDocument, view = frame.contentWindow, all = (query) => [...page.querySelectorAll(query)];
  const texts = all("body *").filter((node) => !node.closest("svg") &&
    [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim()));
  const ids = all("[id]").map((node) => node.id);
  const labels = all("[aria-labelledby]").flatMap((node) => node.getAttribute("aria-labelledby").split(" "));
  return {
    title: page.title, width: page.documentElement.scrollWidth, height: page.documentElement.scrollHeight,
    text: page.body.innerText,
    verdict: page.querySelector(".verdict").getBoundingClientRect().bottom,
    landmarks: ["header", "nav", "main", "footer"].map((name) => all("body > " + name).length),
    headings: all("h1, h2, h3").map((node) => Number(node.tagName[1])),
    contrast: Math.min(...texts.map((node) => contrast(view, node))),
    smallest: Math.min(...texts.map((node) => parseFloat(view.getComputedStyle(node).fontSize))),
    tables: all("table").length, captions: all("table > caption").length,
    unscoped: all("th:not([scope])").length,
    unnamed: all("svg").filter((node) => node.getAttribute("aria-hidden") !== "true" &&
      !(node.getAttribute("role") === "img" && node.querySelector(":scope > title") && node.querySelector(":scope > desc"))).length,
    twice: ids.filter((id, i) => ids.indexOf(id) !== i), missing: labels.filter((id) => !ids.includes(id)),
    unfocusable: all(".scroll").filter((node) => node.tabIndex !== 0 || !node.getAttribute("aria-label")).length,
    dead: all("a").filter((node) => !ids.includes(node.getAttribute("href").slice(1))).length,
    scripts: all("script").length, loaded: view.performance.getEntriesByType("resource").map((entry) => entry.name),
    marks: all("svg.band rect").map((node) => node.getBoundingClientRect().width),
    bars: all("svg.bars rect").map((node) => node.getBoundingClientRect().height),
  };
}
frame.onload = () => { document.querySelector("pre").textContent = JSON.stringify(look()); };
"""


def chromium() -> str:
    """The browser's program; skips where there is none."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        if os.environ.get("MQTOOL_REQUIRE_INTEROP"):
            raise AssertionError("no Chromium")
        pytest.skip("no Chromium: install it (Debian and Ubuntu: chromium) to look at reports in a browser")
    return found


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Starts the browser once, with a profile of its own and without any network."""
    command = [
        chromium(),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--no-first-run",
        "--disable-dev-shm-usage",
        "--disable-extensions",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        "--allow-file-access-from-files",
        "--enable-logging=stderr",
        f"--user-data-dir={directory / 'profile'}",
        *arguments,
    ]
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=SECONDS
    )


def look_at(page: Path, directory: Path, width: int) -> dict[str, Any]:
    """What a browser window of this width shows of a page.

    Returns:
        What `MEASURE` measures; lengths in CSS pixels. `console` is what the browser complained of.
    """
    around = directory / f"around-{width}.html"
    around.write_text(
        f'<!DOCTYPE html><iframe style="border:0;width:{width}px;height:900px"></iframe><pre></pre>'
        f"<script>{MEASURE}\nframe.src = {json.dumps(page.resolve().as_uri())};</script>",
        "utf-8",
    )
    result = run(directory, "--virtual-time-budget=10000", "--window-size=1600,1200", "--dump-dom", around.as_uri())
    measured = re.search(r"<pre>(.*?)</pre>", result.stdout, re.DOTALL)
    assert measured is not None
    assert measured[1], f"the page did not load: {result.stderr[-2000:]}"
    complaints = [line for line in result.stderr.splitlines() if "CONSOLE" in line]
    return {**json.loads(html.unescape(measured[1])), "console": complaints}
