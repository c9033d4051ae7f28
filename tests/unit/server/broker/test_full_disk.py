"""A disk that is really full: a small file system of its own, which needs namespaces of users."""

import json
import subprocess
import sys

import pytest

from tests.support.remoting import Client, records
from tests.support.rocketmq import write_properties

SMALL = 'mount -t tmpfs -o size=24m tmpfs "$0" && exec "$@"'
KEYS = {
    "mappedFileSizeCommitLog": 2 << 20,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}
BODY = 500_000


@pytest.fixture
def served(tmp_path):
    """A broker whose store lies on 24 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    try:
        subprocess.run(["unshare", "-rm", "sh", "-c", SMALL, str(place), "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system of its own: {error}")
    config = write_properties(tmp_path / "serve.conf", KEYS)
    command = [
        sys.executable,
        "-m",
        "mqtool",
        "serve",
        str(place / "store"),
        "--port",
        "0",
        "--namesrv-port",
        "0",
        "--config",
        str(config),
    ]
    with (tmp_path / "serve.log").open("wb") as log:
        process = subprocess.Popen(
            ["unshare", "-rm", "sh", "-c", SMALL, str(place), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
        )
        yield process
        process.kill()
        process.wait(30)
        process.stdout.close()


@pytest.mark.slow
def test_sends_are_refused_and_what_was_acknowledged_is_there(served):
    acknowledged, refused = 0, []
    with Client(json.loads(served.stdout.readline())["broker"]) as client:
        assert client.create_topic("Full").code == 0
        while len(refused) < 20 and acknowledged < 1000:
            answer = client.put("Full", b"%d " % acknowledged + b"f" * BODY)
            if answer.code == 0:
                acknowledged += 1
            else:
                refused.append((answer.code, answer.remark))
        assert {code for code, _ in refused} <= {1, 14}
        assert all(remark for _, remark in refused)
        offset = int(
            client.call(31, topic="Full", queueId=0).fields["offset"]
        )  # retention may have made room meanwhile
        while offset < acknowledged:
            answer = client.pull("Full", offset=offset)
            assert answer.code == 0, (offset, acknowledged, answer.remark)
            for facts, body in records(answer):
                assert (facts["queue_offset"], body[:8].split()[0]) == (offset, b"%d" % offset)
                offset += 1
    served.terminate()
    assert served.wait(60) == 0
