"""Replays in a process that ends at a step of its own: `python -m tests.support.replay_killed SOURCE DIRECTORY STEP`.

Steps are writes: to the log, of lines of ids, of the state. Prints how many there were if none ended it.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mqtool.engine.store import MessageStore
from mqtool.ingest import bulk_ingest
from mqtool.replay import state, to_store
from mqtool.replay.originals import Source
from mqtool.replay.state import IdsFile, State
from mqtool.store.log.selection import Selection

CHUNK = 7


def request(source: Path, directory: Path) -> to_store.ReplayRequest:
    """What is replayed: everything into `target`."""
    return to_store.ReplayRequest(
        Source(source, Selection()), directory / "target", directory / "ids", directory / "state"
    )


def main() -> None:
    source, directory, last = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    steps = 0

    def counted(function: Callable[..., Any], *, after: bool) -> Callable[..., Any]:
        def step(*arguments: Any, **named: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps == last and not after:
                os._exit(9)
            found = function(*arguments, **named)
            if steps == last:
                os._exit(9)
            return found

        return step

    bulk_ingest.CHUNK = CHUNK
    state.REMEMBER_SECONDS = 0.05
    MessageStore.put_many = counted(MessageStore.put_many, after=True)  # type: ignore[method-assign]
    IdsFile.write = counted(IdsFile.write, after=False)  # type: ignore[method-assign]
    State.save = counted(State.save, after=last % 2 == 0)  # type: ignore[method-assign]
    to_store.replay(request(source, directory))
    print(steps)


if __name__ == "__main__":
    main()
