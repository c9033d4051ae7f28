"""Draws docs/pictures: `python docs/pictures.py` writes, `--check` names what is out of date and exits with 1.

Record layout, segment map and dashboard come from the declared layout, from a report on a damaged copy of a fixture and
from deploy/monitoring/dashboard.json; the other pictures are boxes and arrows, declared below. Colours follow the theme
of the site, or the system's outside of it.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
sys.path.insert(0, str(ROOT))

from docs.stale_files import write_or_check  # noqa: E402 - the checkout comes first
from mqtool.formats import codec, commit_log  # noqa: E402

STYLE = """
.mq text{font:14px system-ui,sans-serif;fill:var(--md-default-fg-color,#1f2328)}
.mq .small{font-size:12px}
.mq .code{font-family:ui-monospace,monospace;font-size:12.5px}
.mq .box{fill:var(--md-code-bg-color,#f4f5f7);stroke:var(--md-default-fg-color--light,#57606a)}
.mq .good{stroke:#1a8f4c;stroke-width:2}.mq .bad{stroke:#d1342f;stroke-width:2}.mq .ask{stroke:#3f6fd8;stroke-width:2}
.mq .line{fill:none;stroke:var(--md-default-fg-color--light,#57606a);stroke-width:1.5}
.mq .tip{fill:var(--md-default-fg-color--light,#57606a)}
@media(prefers-color-scheme:dark){
.mq text{fill:var(--md-default-fg-color,#e6edf3)}
.mq .box{fill:var(--md-code-bg-color,#22272e)}
.mq .box:not(.good):not(.bad):not(.ask),.mq .line{stroke:var(--md-default-fg-color--light,#9aa4b0)}
.mq .tip{fill:var(--md-default-fg-color--light,#9aa4b0)}}
"""


class Box(NamedTuple):
    """A box with lines of text; `kind` is "", good, bad or ask; a line that begins with a backtick is code."""

    x: int
    y: int
    width: int
    lines: Sequence[str]
    kind: str = ""

    @property
    def height(self) -> int:
        """Height of the box, from its lines."""
        return 18 * len(self.lines) + 16


def svg(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    """Returns a picture."""
    style = " ".join(STYLE.split())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="mq" role="img" '
        f'viewBox="0 0 {width} {height}" width="{width}">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def drawn(box: Box) -> Iterator[str]:
    """Yields a box and its text."""
    kind = f" {box.kind}" if box.kind else ""
    yield f'<rect class="box{kind}" x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="5"/>'
    for number, line in enumerate(box.lines):
        style = ' class="code"' if line.startswith("`") else ""
        y = box.y + 22 + 18 * number
        yield f'<text{style} x="{box.x + box.width // 2}" y="{y}" text-anchor="middle">{escape(line.strip("`"))}</text>'


def arrow(points: Sequence[tuple[int, int]], label: str = "", at: tuple[int, int] | None = None) -> str:
    """Returns a line with a tip at its end, and a label."""
    path = "M" + " L".join(f"{x} {y}" for x, y in points)
    (x0, y0), (x1, y1) = points[-2:]
    across = (x1 > x0) - (x1 < x0)
    down = (y1 > y0) - (y1 < y0) if not across else 0
    tip = [
        (x1, y1),
        (x1 - 9 * across - 5 * down, y1 - 9 * down - 5 * across),
        (x1 - 9 * across + 5 * down, y1 - 9 * down + 5 * across),
    ]
    found = f'<path class="line" d="{path}"/><path class="tip" d="M{" L".join(f"{x} {y}" for x, y in tip)}Z"/>'
    if label and at:
        found += f'<text class="small" x="{at[0]}" y="{at[1]}">{escape(label)}</text>'
    return found


def store_anatomy() -> str:
    """The directory of a store: one log, and what is derived from it."""
    log = Box(10, 10, 340, ("`commitlog/`", "all messages of all topics,", "in the order they were stored"), "ask")
    queue = Box(60, 105, 290, ("`consumequeue/TOPIC/QUEUE/`", "place, size and tag of each message"))
    index = Box(60, 175, 290, ("`index/`", "messages by key"))
    timer = Box(60, 245, 290, ("`timerwheel, timerlog/`", "messages to deliver later (5.x)"))
    config = Box(10, 340, 340, ("`config/`", "topics, groups, consumer offsets"))
    state = Box(10, 410, 340, ("`checkpoint, abort, lock`", "what is flushed, clean or not, in use"))
    parts = [line for box in (log, queue, index, timer, config, state) for line in drawn(box)]
    parts += [arrow([(30, 80), (30, y), (58, y)]) for y in (131, 201, 271)]
    parts.append('<text class="small" x="10" y="322">What the arrows lead to can be rebuilt from the log.</text>')
    return svg(360, 470, "Anatomy of a store", parts)


def record_layout() -> str:
    """The fields of a record, from its declared layout."""
    rows = [(field, str(size)) for field, size, _ in codec.all_fields(commit_log.RECORD)]
    columns, width, height = 4, 222, 46
    parts = []
    for number, (field, size) in enumerate(rows):
        x, y = 10 + (number % columns) * width, 10 + (number // columns) * height
        varies = "" if re.fullmatch(r"[iu]\d+", size) else " ask"
        parts.append(f'<rect class="box{varies}" x="{x}" y="{y}" width="{width - 4}" height="{height - 4}"/>')
        parts.append(f'<text class="code" x="{x + 8}" y="{y + 18}">{escape(field)}</text>')
        parts.append(f'<text class="small" x="{x + 8}" y="{y + 34}">{escape(size)}</text>')
    return svg(
        columns * width + 16, (len(rows) // columns + 1) * height + 16, "Layout of a record in the CommitLog", parts
    )


def recovery_decisions() -> str:
    """What to do before a broker is started."""
    ask = Box(10, 10, 340, ("`mqtool explain-start STORE`", "what would a start do?"), "ask")
    good = Box(60, 85, 290, ("starts, loses nothing: start the broker",), "good")
    repair = ("loses messages, or does not start:", "`mqtool repair STORE`", "can it be repaired in place?")
    bad = Box(60, 140, 290, repair, "bad")
    yes = Box(110, 235, 240, ("yes: apply the plan it shows",), "good")
    no = Box(110, 290, 240, ("no: copy what is intact", "`mqtool repair STORE -o NEW`"))
    parts = [line for box in (ask, good, bad, yes, no) for line in drawn(box)]
    parts += [
        arrow([(30, 62), (30, 102), (58, 102)]),
        arrow([(30, 62), (30, 175), (58, 175)]),
        arrow([(80, 210), (80, 252), (108, 252)]),
        arrow([(80, 210), (80, 316), (108, 316)]),
        '<text class="small" x="10" y="368">After a repair, run explain-start again.</text>',
    ]
    return svg(360, 385, "Before you start a broker", parts)


def repair_states() -> str:
    """The states of a change: planned, applied, undone or its undo data discarded."""
    plan = Box(10, 60, 140, ("planned", "`plan.json`"))
    half = Box(250, 60, 150, ("being applied", "journal is open"), "ask")
    done = Box(510, 60, 150, ("applied", "old files are kept"), "good")
    undone = Box(250, 200, 150, ("undone", "byte for byte"))
    final = Box(510, 200, 150, ("no undo any more", "old files deleted"))
    parts = [line for box in (plan, half, done, undone, final) for line in drawn(box)]
    parts += [
        arrow([(150, 86), (248, 86)], "apply --yes", (165, 78)),
        arrow([(400, 86), (508, 86)], "verified", (425, 78)),
        arrow([(325, 112), (325, 198)], "undo", (332, 160)),
        arrow([(560, 112), (560, 160), (380, 160), (380, 198)], "undo", (455, 154)),
        arrow([(620, 112), (620, 198)], "discard-undo", (627, 160)),
        arrow([(290, 58), (290, 25), (360, 25), (360, 58)], "interrupted: apply again", (252, 17)),
    ]
    return svg(690, 265, "States of a repair", parts)


def segment_map() -> str:
    """The segment map of a report on a copy of a fixture with one damaged and one missing segment."""
    with tempfile.TemporaryDirectory() as scratch:
        store = Path(scratch) / "store"
        shutil.copytree(ROOT / "fixtures" / "orders-5.5.0" / "store", store)
        segments = sorted((store / "commitlog").iterdir())
        data = bytearray(segments[0].read_bytes())
        data[100] ^= 1  # in the body of the first record
        segments[0].write_bytes(data)
        segments[3].unlink()
        page = Path(scratch) / "report.html"
        command = [sys.executable, "-m", "mqtool", "report", str(store), "-o", str(page), "--format", "json"]
        subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
        html = page.read_text("utf-8")
    cells = html[html.index('<figure class="cells">') :]
    cells = cells[cells.index("<g>") : cells.index("</svg>")]
    legend = re.findall(
        r"<li><svg[^>]*>(.*?)</svg>([^<]*)</li>", html[html.index('<figure class="cells">') :], re.DOTALL
    )[:4]
    parts = [f'<g transform="translate(20 20) scale(3)">{" ".join(cells.split())}</g>']
    for number, (mark, words) in enumerate(legend):
        y = 110 + 26 * number
        parts.append(f'<g transform="translate(20 {y})">{" ".join(mark.split())}</g>')
        parts.append(f'<text x="50" y="{y + 15}">{words.strip()}</text>')
    return svg(520, 120 + 26 * len(legend), "Segment map of a report", parts)


def dashboard() -> str:
    """The panels of the Grafana dashboard where they are, each with the metrics that it shows."""
    board = json.loads((ROOT / "deploy" / "monitoring" / "dashboard.json").read_text("utf-8"))
    across, down, parts = 38, 19, []  # pixels of Grafana's grid of 24 columns
    for panel in board["panels"]:
        place = panel["gridPos"]
        x, y, width, height = 10 + place["x"] * across, 8 + place["y"] * down, place["w"] * across, place["h"] * down
        if panel["type"] == "row":
            parts.append(f'<text x="{x}" y="{y + 15}">{escape(panel["title"])}</text>')
            continue
        parts.append(f'<rect class="box" x="{x}" y="{y}" width="{width - 6}" height="{height - 6}" rx="3"/>')
        parts.append(f'<text x="{x + 8}" y="{y + 20}">{escape(panel["title"])}</text>')
        text = " ".join(target["expr"] for target in panel["targets"])
        metrics = dict.fromkeys(re.findall(r"\b(?:mqtool|rocketmq)_\w+", text))
        for number, metric in enumerate(metrics):
            line = metric.removeprefix("mqtool_verify_" if metric.startswith("mqtool_verify") else "rocketmq_")
            parts.append(f'<text class="small" x="{x + 8}" y="{y + 44 + 18 * number}">{escape(line)}</text>')
    bottom = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"])
    return svg(24 * across + 14, bottom * down + 10, "The dashboard: its panels and what each shows", parts)


DRAWINGS = {
    "dashboard": dashboard,
    "store-anatomy": store_anatomy,
    "record-layout": record_layout,
    "recovery-decisions": recovery_decisions,
    "repair-states": repair_states,
    "segment-map": segment_map,
}


def main() -> int:
    """Writes or checks every picture; returns the exit code."""
    return write_or_check({PICTURES / f"{name}.svg": draw() for name, draw in DRAWINGS.items()})


if __name__ == "__main__":
    sys.exit(main())
