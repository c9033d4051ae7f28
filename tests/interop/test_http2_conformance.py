"""The conformance suite h2spec at a server that answers each request after its end, on the session that `serve` uses."""

import asyncio
import os
import re

import pytest

from mqtool.errors import RemoteProtocolError
from mqtool.server.net.header_blocks import constant_block
from mqtool.server.net.http2_session import Http2Session
from tests.support.clients import h2spec
from tests.support.rocketmq import Unavailable

pytestmark = pytest.mark.interop

FIRST, LAST = constant_block([(b":status", b"200")]), constant_block([(b"x-end", b"1")])
BODY = b"answer"
PASSED = re.compile(rb"(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed")


class Answers:
    """Answers each request with six bytes, as the windows allow."""

    def __init__(self, transport):
        self.transport, self.waiting = transport, {}
        self.session = Http2Session(self)

    def requested(self, stream_id, headers):
        """Nothing to do before the end of the request."""

    def data_received(self, stream_id, _data, is_end):
        if is_end:
            self.session.send_headers(stream_id, FIRST)
            self.waiting[stream_id] = BODY
            self.widened(stream_id)

    def widened(self, stream_id):
        for stream in [stream_id] if stream_id else list(self.waiting):
            while stream in self.waiting and (room := self.session.room(stream)) > 0:
                self.session.send_data(stream, self.waiting[stream][:room])
                self.waiting[stream] = self.waiting[stream][room:]
                if not self.waiting[stream]:
                    del self.waiting[stream]
                    self.session.end(stream, LAST)

    def reset(self, stream_id):
        self.waiting.pop(stream_id, None)

    def terminated(self, _code):
        """Goes on until the client closes the connection."""


class Answering(asyncio.Protocol):
    """A connection of the server."""

    def connection_made(self, transport):
        self.transport, self.session = transport, Answers(transport).session
        transport.write(self.session.take_output())

    def data_received(self, data):
        try:
            self.session.receive(data)
        except RemoteProtocolError:
            self.transport.write(self.session.take_output())
            self.transport.close()
        else:
            self.transport.write(self.session.take_output())


def test_the_session_conforms():
    try:
        command = h2spec()
    except Unavailable as reason:
        if os.environ.get("MQTOOL_REQUIRE_INTEROP"):
            raise
        pytest.skip(str(reason))

    async def run():
        server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", 0)
        port = str(server.sockets[0].getsockname()[1])
        options = ["-h", "127.0.0.1", "-p", port, "--timeout", "2", "--strict"]
        suite = await asyncio.create_subprocess_exec(
            *command, *options, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        said, _ = await suite.communicate()
        server.close()
        return said

    said = asyncio.run(run())
    counts = PASSED.search(said)
    assert counts, said[-2000:]
    total, passed, skipped, failed = map(int, counts.groups())
    assert (failed, skipped) == (0, 0), said.decode()[-6000:]
    assert passed == total > 140
