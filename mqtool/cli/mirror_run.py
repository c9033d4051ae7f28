"""What `mqtool mirror` does once its options are read."""

import logging
import signal
import sys
from pathlib import Path
from typing import Any

from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format, Invocation
from mqtool.cli.mirror import MIRROR
from mqtool.cli.output import Output
from mqtool.server.replication.mirror import follow


def run(invocation: Invocation, master: str, copy: Path, output_format: Format, *, once: bool) -> ExitCode:
    """Follows, and says what came of it."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    output = Output(invocation, MIRROR, output_format)
    document: dict[str, Any] = follow(master, copy, once=once, signals=(signal.SIGTERM, signal.SIGINT))
    return output.document(document)
