"""The extension modules as they are imported."""

import contextlib
import os
import signal
import threading
import time
from typing import NamedTuple

import pytest

from mqtool import native
from tests.support.native import needs_native


def test_ctrl_c_while_the_modules_are_imported_is_not_lost(monkeypatch):
    def imported(name):
        with contextlib.suppress(BaseException):  # as the start of a module of Cython does
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
        return name

    monkeypatch.setattr(native, "import_module", imported)
    end = threading.Event()
    thread = threading.Thread(target=end.wait, daemon=True)  # may receive the signal, as the threads of numpy may
    thread.start()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever an earlier test has left
    with pytest.raises(KeyboardInterrupt):
        native._are_imported.__wrapped__()
    end.set()
    thread.join()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@needs_native
def test_a_named_tuple_with_other_fields_is_refused():
    class QueryResult(NamedTuple):
        physical_offsets: list
        records: list
        index_last_update_timestamp: int
        index_last_update_physical_offset: int

    with pytest.raises(TypeError, match=r"expected the fields .'records', 'physical_offsets', .* found .'physical_off"):
        native.engine.Finder(None, None, QueryResult)


def test_on_a_free_threaded_interpreter_the_modules_are_not_imported(monkeypatch):
    imported = []
    monkeypatch.setattr(native, "import_module", imported.append)
    monkeypatch.setattr(native.sys, "abiflags", "t")
    assert not native._are_imported.__wrapped__()
    assert imported == []
    monkeypatch.setattr(native.sys, "abiflags", "")
    assert native._are_imported.__wrapped__()
    assert imported == ["mqtool.native.engine", "mqtool.native.lines", "mqtool.native.logs"]
