"""The test endpoints: functions of a test over HTTP, in a server that was started for tests, and in no other."""

import http.client
import json
import time

import pytest

from mqtool.server.clock import ServerClock

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def tested(serve):
    return serve(clock=ServerClock())


def ask(running, method, target, body=None, **headers):
    connection = http.client.HTTPConnection(running.admin, timeout=60)
    try:
        connection.request(method, target, body, headers)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    finally:
        connection.close()


def test_the_clock_is_read_and_advanced(tested):
    status, text = ask(tested, "GET", "/clock")
    assert status == 200
    assert abs(json.loads(text) - time.time() * 1000) < 60_000
    for target, body in [("/clock/advance?hours=1&minutes=60", None), ("/clock/advance", '{"hours": 2}')]:
        before = json.loads(ask(tested, "GET", "/clock")[1])
        status, text = ask(tested, "POST", target, body)
        assert (status, 2 * HOUR_MS <= json.loads(text) - before < 2.1 * HOUR_MS) == (200, True)


@pytest.mark.parametrize(
    ("method", "target", "body", "status", "words"),
    [
        ("GET", "/clock/advance", None, 405, "expected POST, found GET"),
        ("POST", "/clock/advance?hour=1", None, 400, "unknown field `hour`"),
        ("POST", "/clock/advance?hours=soon", None, 400, "Expected `float`, got `str`"),
        ("POST", "/clock/advance?hours=-1", None, 400, "expected to advance by 0 seconds to 36500 days"),
        ("POST", "/clock/advance?hours=nan", None, 400, "36500 days, found nan seconds"),
        ("POST", "/clock/advance?hours=inf", None, 400, "36500 days, found inf seconds"),
        ("POST", "/clock/advance", '{"a":' * 50_000, 400, "recursion"),
        ("POST", "/clock/advance", "hours", 400, "JSON is malformed"),
        ("POST", "/clock/advance", "[1]", 400, "Expected `object`, got `array`"),
    ],
)
def test_a_wrong_request_is_told_what_is_wrong(tested, method, target, body, status, words):
    found, text = ask(tested, method, target, body)
    assert found == status
    assert words in text
    assert text.count("\n") == 1


@pytest.mark.parametrize(
    "headers", [{"Transfer-Encoding": "chunked"}, {"Content-Length": "-1"}], ids=["chunked", "negative"]
)
def test_a_body_of_unknown_size_is_refused(tested, headers):
    """The body is not sent: the connection may be closed before it has arrived."""
    status, text = ask(tested, "POST", "/clock/advance", None, **headers)
    assert (status, text) == (411, "expected the size of the body as Content-Length, of at most 9 digits\n")


@pytest.mark.parametrize("headers", [{"Origin": "https://example.org"}, {"Host": "example.org"}], ids=["page", "name"])
def test_a_web_page_cannot_use_them(tested, headers):
    assert ask(tested, "POST", "/clock/advance?hours=1", None, **headers)[0] == 403


def test_pages_and_metrics_are_served_as_without_them(tested):
    assert [ask(tested, "GET", target)[0] for target in ("/", "/topics", "/metrics", "/nothing")] == [
        200,
        200,
        200,
        404,
    ]


def test_no_other_server_has_them(site):
    assert ask(site, "GET", "/clock")[0] == 404
    assert ask(site, "POST", "/clock/advance?hours=1")[0] in (404, 405)


def test_faults_are_planned_listed_and_ended(tested):
    assert ask(tested, "POST", "/faults", '{"send": 1, "code": "NO_PERMISSION", "topic": "T"}')[0] == 200
    assert ask(tested, "POST", "/faults?pull=2")[0] == 200
    assert json.loads(ask(tested, "GET", "/faults")[1]) == [
        {"kind": "send", "left": 1, "code": "NO_PERMISSION", "topic": "T"},
        {"kind": "pull", "left": 2, "code": "SYSTEM_BUSY", "topic": None},
    ]
    with tested.connect() as client:
        assert [client.put("T").code for _ in range(2)] == [16, 0]
    assert ask(tested, "DELETE", "/faults")[0] == 200
    assert json.loads(ask(tested, "GET", "/faults")[1]) == []
    assert ask(tested, "POST", "/faults?send=1&code=NOTHING")[0] == 400


def test_a_broker_is_paused_slowed_down_and_cut_off(tested):
    with tested.connect() as client:
        assert client.put("T").code == 0
        assert ask(tested, "POST", "/pause")[0] == 200
        sent = client.send_pull("T", 0, 0)
        assert ask(tested, "POST", "/delay?ms=100")[0] == 200
        assert ask(tested, "POST", "/delay")[0] == 400
        began = time.monotonic()
        assert ask(tested, "POST", "/resume")[0] == 200
        assert client.answer(sent).code == 0
        assert time.monotonic() - began >= 0.1
        assert json.loads(ask(tested, "POST", "/connections/drop")[1]) == 1
    assert ask(tested, "POST", "/delay?ms=0")[0] == 200
