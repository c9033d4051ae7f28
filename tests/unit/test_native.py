"""The extension modules as they are imported."""

import contextlib
import os
import signal

import pytest

from mqtool import native


def test_ctrl_c_while_the_modules_are_imported_is_not_lost(monkeypatch):
    def imported(name):
        with contextlib.suppress(BaseException):  # as the start of a module of Cython does
            os.kill(os.getpid(), signal.SIGINT)
        return name

    monkeypatch.setattr(native, "import_module", imported)
    monkeypatch.setattr(native.sysconfig, "get_config_var", lambda _: 0)
    with pytest.raises(KeyboardInterrupt):
        native._modules.__wrapped__()
