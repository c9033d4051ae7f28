"""The account with which a command signs: from two variables, or from the file that mqadmin reads."""

import pytest

from mqtool.errors import ConfigFileError, UsageError
from mqtool.protocol import Command, RequestCode
from mqtool.server.net.acl import ACCESS_KEY, KEY_VARIABLE, SECRET_VARIABLE, SIGNATURE, own_signing, sign


def tools(tmp_path, text):
    path = tmp_path / "conf" / "tools.yml"
    path.parent.mkdir()
    path.write_text(text)
    return {"ROCKETMQ_HOME": str(tmp_path)}


def fields(environment):
    made = own_signing(environment)
    return made(Command(RequestCode.GET_BROKER_CONFIG, fields={"a": "b"})).fields


def expected(key, secret):
    command = Command(RequestCode.GET_BROKER_CONFIG, fields={"a": "b", ACCESS_KEY: key})
    return command.fields | {SIGNATURE: sign(command, secret)}


def test_nothing_is_signed_without_an_account(tmp_path):
    assert own_signing({}) is None
    assert own_signing({"ROCKETMQ_HOME": str(tmp_path)}) is None


def test_variables_come_before_the_file_of_mqadmin(tmp_path):
    home = tools(tmp_path, "accessKey: FileKey\nsecretKey: 12345678\n")
    assert fields(home) == expected("FileKey", "12345678")
    both = home | {KEY_VARIABLE: "OwnKey", SECRET_VARIABLE: "OwnSecret"}
    assert fields(both) == expected("OwnKey", "OwnSecret")


def test_half_an_account_is_refused(tmp_path):
    with pytest.raises(UsageError, match="expected both"):
        own_signing({KEY_VARIABLE: "OwnKey"})
    with pytest.raises(ConfigFileError, match="found no account"):
        own_signing(tools(tmp_path, "accessKey: FileKey\n"))


def test_no_secret_is_in_an_error(tmp_path):
    with pytest.raises(ConfigFileError) as raised:
        own_signing(tools(tmp_path, "secretKey: [Hidden\n"))
    assert "Hidden" not in str(raised.value)
