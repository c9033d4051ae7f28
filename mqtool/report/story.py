"""The life of a message as an HTML page: a diagram with a lane per participant, and a table with proofs."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from mqtool import __version__, words
from mqtool.pages import templates
from mqtool.story import MessageHistory, Step, StepKind

if TYPE_CHECKING:
    from jinja2 import Environment

LANE_WIDTH, ROW_HEIGHT = 150, 34
BROKER, PRODUCER = "broker", "producer"


class Dot(Struct, frozen=True):
    """A step in the diagram."""

    x: int  # and y: its centre, in pixels
    y: int
    step: Step  # what happened
    time: str  # as text; "" if the store does not contain it
    due: str  # the same for the delivery time


class Diagram(Struct, frozen=True):
    """The diagram of one life."""

    history: MessageHistory  # the life that is drawn
    lanes: tuple[tuple[str, int], ...]  # name and centre of each lane: producer, broker, each consumer group
    dots: tuple[Dot, ...]  # one for each step
    width: int  # and height: in pixels
    height: int

    @property
    def path(self) -> str:
        """The line through the proved steps, for `polyline`."""
        return " ".join(f"{dot.x},{dot.y}" for dot in self.dots if dot.step.kind is not StepKind.UNKNOWN)


def story(store: str, address: str, histories: Sequence[MessageHistory], notes: Sequence[str]) -> str:
    """Returns the page as HTML."""
    created = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC by mqtool {__version__}"
    diagrams = [diagram(life) for life in histories]
    template = _environment().get_template("story.html")
    return template.render(store=store, address=address, pictures=diagrams, notes=notes, made=created)


def diagram(life: MessageHistory) -> Diagram:
    """Computes the positions of a life's steps and lanes."""
    names = [PRODUCER, BROKER, *dict.fromkeys(lane_of(step) for step in life.steps)]
    lanes = {name: LANE_WIDTH // 2 + LANE_WIDTH * at for at, name in enumerate(dict.fromkeys(names))}
    dots = tuple(
        Dot(lanes[lane_of(step)], 48 + ROW_HEIGHT * row, step, _time(step.at), _time(step.due))
        for row, step in enumerate(life.steps)
    )
    return Diagram(life, tuple(lanes.items()), dots, LANE_WIDTH * len(lanes), 48 + ROW_HEIGHT * len(dots))


def lane_of(step: Step) -> str:
    """Returns who performed a step: the producer, the broker or a consumer group."""
    if step.is_of_producer or step.kind is StepKind.SENT:
        return PRODUCER
    by_broker = (StepKind.RETRY, StepKind.DEAD)
    return BROKER if step.group is None or step.kind in by_broker else step.group


def _time(at: int | None) -> str:
    return "" if at is None else f"{words.moment(at)}.{at % 1000:03} UTC"


@cache
def _environment() -> "Environment":
    return templates("mqtool.report")
