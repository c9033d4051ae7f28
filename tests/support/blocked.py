"""The mqtool program with one function that never returns, so that a run can be interrupted at a known place.

`MQTOOL_TEST_BLOCKED` names the function, `MODULE:NAME`, and `MQTOOL_TEST_MARKS` a directory: a process that enters the
function leaves a file there that is named by its process id. Worker processes import this file too.
"""

import os
import signal
from importlib import import_module
from pathlib import Path
from typing import Any

from mqtool.cli.app import main


def block(*_arguments: Any, **_options: Any) -> Any:
    (Path(os.environ["MQTOOL_TEST_MARKS"]) / str(os.getpid())).touch()
    while True:
        signal.pause()


module, _, name = os.environ["MQTOOL_TEST_BLOCKED"].partition(":")
setattr(import_module(module), name, block)

if __name__ == "__main__":
    main()
