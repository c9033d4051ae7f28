"""Messages behind the damage at which recovery cuts the log: found again, and listed for whoever wants them back.

The broker's recovery stops at the first record that fails and drops all that follows, whole or not. Here the next
record behind the damage is looked for, with proof that it is one (`scan.resync`). What the listing says can be
appended again (`mqtool append`); the messages get new offsets then.
"""

import base64
import json
import os
from typing import Any

from mqtool.engine.quarantine import Quarantine
from mqtool.errors import LayoutError, NotAStoreError
from mqtool.recovery.settings import Settings
from mqtool.store import Message
from mqtool.store.store import open_store


def list_cut_messages(root: "os.PathLike[str]", settings: Settings, cut_from: int, quarantine: Quarantine) -> int:
    """Lists the whole messages that lie from a physical offset on; durable on return. Call it before anything is cut.

    Args:
        root: of the store.
        settings: where its log is.
        cut_from: physical offset.
        quarantine: takes the listing; nothing is made there if there is no message.

    Returns:
        How many there are.
    """
    directories = ",".join(str(path) for path in settings.commit_log_dirs)
    keys = {"storePathCommitLog": directories, "mappedFileSizeCommitLog": settings.segment_size}
    try:
        with open_store(os.fspath(root), keys) as store:
            found = [one for one in store.messages(start=cut_from) if isinstance(one, Message)]
            rows = [_row(one) for one in found if one.physical_offset >= cut_from]
    except (LayoutError, NotAStoreError):  # there is no log yet
        return 0
    if rows:
        path = quarantine.listing()
        with path.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
            file.flush()
            os.fsync(file.fileno())
    return len(rows)


def _row(message: Message) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "born_timestamp": message.born_timestamp,
        "born_host": str(message.born_host),
        "store_host": str(message.store_host),
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": message.prepared_transaction_offset,
        "properties": message.properties,
        "body_base64": base64.b64encode(message.raw_body).decode("ascii"),
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "store_timestamp": message.store_timestamp,
    }
