"""The listener and its connections: real sockets on the loopback, hostile and slow peers included."""

import asyncio
import contextlib
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any

import pytest

from mqtool.errors import LocalProtocolError, PortInUseError, UsageError
from mqtool.protocol import Command, RequestCode, ResponseCode, encode
from mqtool.server.net import connections, loop_factory
from mqtool.server.net.connections import Connection, Listener, address_of, parse_address
from mqtool.server.net.peer import Answer, Handler, Limits, Peer

ECHO, LATER, NEVER, FAIL, BIG = 10, 11, 12, 13, 14


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Runs a coroutine on each of the loops, with a limit for what would hang."""
    factory = asyncio.new_event_loop if request.param == "asyncio" else pytest.importorskip("uvloop").new_event_loop

    def runner(main: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=factory) as loop:
            return loop.run(asyncio.wait_for(main, 60))

    return runner


def echo(command: Command, _peer: Peer) -> Command:
    return command.reply(0, None, dict(command.fields), command.body)


async def later(command: Command, _peer: Peer) -> Command:
    await asyncio.sleep(0)
    return command.reply(0, "later")


def fail(command: Command, _peer: Peer) -> Command:
    raise ValueError(f"cannot do {command.code}")


def big(command: Command, _peer: Peer) -> Command:
    return command.reply(0, None, {}, memoryview(bytes(1 << 20)))


HANDLERS: dict[int, Handler] = {ECHO: echo, LATER: later, NEVER: lambda command, peer: None, FAIL: fail, BIG: big}


@contextlib.asynccontextmanager
async def serving(handlers: Mapping[int, Handler] = HANDLERS, **options: Any) -> AsyncIterator[Listener]:
    listener = Listener("127.0.0.1", 0, handlers, **options)
    await listener.start()
    try:
        yield listener
    finally:
        await listener.stop(0.2)


@contextlib.asynccontextmanager
async def connected(listener: Listener, handlers: Mapping[int, Handler] | None = None) -> AsyncIterator[Connection]:
    connection = await Connection.open(listener.address, handlers)
    try:
        yield connection
    finally:
        connection.close()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.002)


async def raw(listener: Listener) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", listener.port)


def frame(command: Command) -> bytes:
    return b"".join(encode(command))


def test_an_answer_has_the_opaque_and_what_the_handler_returned(run):
    async def main() -> Command:
        async with serving() as listener, connected(listener) as connection:
            return await connection.call(Command(ECHO, fields={"k": "v"}, body=b"body"))

    answer = run(main())
    assert (answer.code, answer.flag, answer.fields, answer.body) == (0, 1, {"k": "v"}, b"body")


def test_a_code_without_handler_gets_the_error_of_a_broker(run):
    async def main() -> Command:
        async with serving() as listener, connected(listener) as connection:
            return await connection.call(Command(4711))

    answer = run(main())
    assert (answer.code, answer.remark) == (3, " request type 4711 not supported")


def test_a_handler_that_raises_is_answered_with_a_system_error(run, caplog):
    async def main() -> Command:
        async with serving() as listener, connected(listener) as connection:
            return await connection.call(Command(FAIL))

    answer = run(main())
    assert (answer.code, answer.remark) == (1, "ValueError: cannot do 13")
    assert "handler failed code=13" in caplog.text


async def fails_later(command: Command, _peer: Peer) -> Command:
    await asyncio.sleep(0)
    raise ValueError(f"cannot do {command.code}")


async def is_given_up(_command: Command, _peer: Peer) -> Command:
    raise asyncio.CancelledError


def not_text(command: Command, _peer: Peer) -> Command:
    return command.reply(0, None, {"k": 5})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("handler", "remark"),
    [
        (fails_later, "ValueError: cannot do 99"),
        (is_given_up, "the request was abandoned"),
        (not_text, "fields of code 0: expected texts, found 5"),
    ],
)
def test_whatever_becomes_of_a_request_its_client_gets_an_answer(handler, remark, run):
    async def main() -> list[Command]:
        async with serving({99: handler, ECHO: echo}) as listener, connected(listener) as connection:
            return [await connection.call(Command(code)) for code in (99, ECHO)]

    failed, echoed = run(main())
    assert (failed.code, failed.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    assert echoed.code == 0


def test_one_way_requests_get_no_answer(run):
    async def main() -> bytes:
        async with serving() as listener:
            reader, writer = await raw(listener)
            writer.write(
                frame(Command(ECHO, 2, 1))
                + frame(Command(LATER, 2, 2))
                + frame(Command(FAIL, 2, 3))
                + frame(Command(ECHO, 0, 4))
            )
            length = int.from_bytes(await reader.readexactly(4), "big")
            found = await reader.readexactly(length)
            writer.close()
            return found

    assert b'"opaque":4' in run(main())


def test_answers_may_overtake_each_other(run):
    gate: asyncio.Event

    async def held(command: Command, _peer: Peer) -> Command:
        await gate.wait()
        return command.reply(0, "held")

    async def main() -> list[str | None]:
        nonlocal gate
        gate = asyncio.Event()
        async with serving({**HANDLERS, NEVER: held}) as listener, connected(listener) as connection:
            first = asyncio.ensure_future(connection.call(Command(NEVER)))
            second = await connection.call(Command(ECHO))
            assert not first.done()
            gate.set()
            return [second.remark, (await first).remark]

    assert run(main()) == [None, "held"]


def test_a_handler_may_answer_later_by_the_peer(run):
    kept: list[tuple[Command, Peer]] = []

    async def main() -> Command:
        keep: dict[int, Handler] = {NEVER: lambda command, peer: kept.append((command, peer))}
        async with serving(keep) as listener, connected(listener) as connection:
            call = asyncio.ensure_future(connection.call(Command(NEVER)))
            await until(lambda: bool(kept))
            command, peer = kept[0]
            peer.send(command.reply(0, "at last"))
            return await call

    assert run(main()).remark == "at last"


def test_the_server_asks_its_client_over_the_same_connection(run):
    async def ask(command: Command, peer: Peer) -> Command:
        answer = await peer.request(Command(RequestCode.GET_CONSUMER_RUNNING_INFO, fields={"q": "1"}), 5)
        return command.reply(answer.code, answer.remark)

    async def main() -> Command:
        mine: dict[int, Handler] = {307: lambda command, peer: command.reply(0, command.fields["q"])}
        async with serving({ECHO: ask}) as listener, connected(listener, mine) as connection:
            return await connection.call(Command(ECHO))

    assert run(main()).remark == "1"


def test_a_request_without_answer_ends_in_a_timeout_and_leaves_nothing(run):
    async def main() -> None:
        async with serving() as listener, connected(listener) as connection:
            with pytest.raises(TimeoutError, match="no answer to request 12 within"):
                await connection.call(Command(NEVER), 0.02)
            assert (await connection.call(Command(ECHO))).code == 0

    run(main())


def test_calls_fail_when_the_connection_goes_down(run):
    async def main() -> None:
        async with serving({NEVER: lambda command, peer: peer.close()}) as listener, connected(listener) as connection:
            with pytest.raises(ConnectionError, match="connection closed"):
                await connection.call(Command(NEVER))
            with pytest.raises(ConnectionError, match="is closed"):
                await connection.call(Command(ECHO))

    run(main())


def test_callbacks_learn_of_a_closed_peer_even_if_one_raises(run, caplog):
    closed: list[Peer] = []

    def opened(peer: Peer) -> None:
        peer.on_close(lambda peer: 1 // 0)
        peer.on_close(closed.append)

    async def main() -> None:
        async with serving(opened=opened) as listener:
            async with connected(listener) as connection:
                await connection.call(Command(ECHO))
            await until(lambda: len(closed) == 1)
            assert closed[0].closed
            assert not listener.peers

    run(main())
    assert "callback of a closed connection failed" in caplog.text


@pytest.mark.parametrize(
    "data",
    [
        b"\x7f\xff\xff\xff\x00\x00\x00\x00",
        b"\xff\xff\xff\xff\x00\x00\x00\x00",
        b"\x00\x00\x00\x03\x00\x00\x00\x00",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        b"\x00\x00\x00\x08\x00\x00\x01\x00abcd",
        b"\x00\x00\x00\x08\x05\x00\x00\x02{}ab",
        b"\x00\x00\x00\x06\x00\x00\x00\x02[]",
    ],
    ids=["huge", "negative", "short", "http", "tls", "header-beyond", "serialization", "no-object"],
)
def test_a_peer_that_breaks_the_protocol_is_closed_and_others_are_served(run, data):
    async def main() -> None:
        async with serving() as listener, connected(listener) as connection:
            reader, writer = await raw(listener)
            writer.write(data)
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
            assert (await connection.call(Command(ECHO))).code == 0

    run(main())


def test_commands_before_a_broken_frame_are_answered(run):
    async def main() -> bytes:
        async with serving() as listener:
            reader, writer = await raw(listener)
            writer.write(frame(Command(ECHO, opaque=5)) + b"\xff" * 8)
            length = int.from_bytes(await reader.readexactly(4), "big")
            found = await reader.readexactly(length)
            writer.close()
            return found

    assert b'"opaque":5' in run(main())


def test_a_silent_connection_is_closed_and_a_talking_one_stays(run):
    async def main() -> None:
        async with serving(limits=Limits(idle_seconds=0.3)) as listener:
            reader, writer = await raw(listener)
            async with connected(listener) as connection:
                reading = asyncio.ensure_future(reader.read())
                while not reading.done():
                    assert (await connection.call(Command(ECHO))).code == 0
                with contextlib.suppress(ConnectionError):
                    assert reading.result() == b""
            writer.close()

    run(main())


def test_connections_beyond_the_limit_are_closed_at_once(run):
    async def main() -> None:
        two = Limits(connections=2)
        async with serving(limits=two) as listener, connected(listener) as first, connected(listener) as second:
            await first.call(Command(ECHO))
            await second.call(Command(ECHO))
            async with connected(listener) as third:
                with pytest.raises(ConnectionError):
                    await third.call(Command(ECHO))
            assert len(listener.peers) == 2

    run(main())


@pytest.mark.slow
def test_a_peer_that_never_reads_stops_being_read_and_is_closed(run):
    """It asks for 1 MiB each time: without back-pressure the answers would fill the memory."""
    asked = 0

    def count(command: Command, peer: Peer) -> Command:
        nonlocal asked
        asked += 1
        return big(command, peer)

    async def main() -> None:
        limits = Limits(write_high=1 << 20, idle_seconds=0.5)
        async with serving({ECHO: echo, BIG: count}, limits=limits) as listener, connected(listener) as connection:
            with socket.create_connection(("127.0.0.1", listener.port)) as deaf:
                deaf.sendall(frame(Command(BIG)) * 500)
                await until(lambda: len(listener.peers) == 2)
                while len(listener.peers) == 2:
                    assert (await connection.call(Command(ECHO))).code == 0
            assert asked < 100

    run(main())


def test_what_is_pushed_to_a_peer_that_never_reads_is_bounded(run):
    async def main() -> None:
        peers: list[Peer] = []
        limits = Limits(write_high=1 << 16, write_max=4 << 20)
        async with serving(limits=limits, opened=peers.append) as listener:
            with socket.create_connection(("127.0.0.1", listener.port)):
                await until(lambda: bool(peers))
                sent = 0
                while not peers[0].closed:
                    peers[0].send(Command(RequestCode.CONSUME_MESSAGE_DIRECTLY, body=bytes(1 << 16)))
                    sent += 1
                    await asyncio.sleep(0)
                assert sent < 1000

    run(main())


def test_too_many_requests_in_flight_wait_and_are_all_answered(run):
    gate: asyncio.Event
    begun = 0

    async def held(command: Command, _peer: Peer) -> Command:
        nonlocal begun
        begun += 1
        await gate.wait()
        return command.reply(0)

    async def main() -> None:
        nonlocal gate
        gate = asyncio.Event()
        handlers: dict[int, Handler] = {NEVER: held, ECHO: echo}
        async with (
            serving(handlers, limits=Limits(in_flight=8)) as listener,
            connected(listener) as connection,
            connected(listener) as other,
        ):
            calls = [asyncio.ensure_future(connection.call(Command(NEVER), 30)) for _ in range(50)]
            await until(lambda: begun >= 8)
            assert (await other.call(Command(ECHO))).code == 0
            assert begun == 8
            gate.set()
            assert {(await call).code for call in calls} == {0}

    run(main())


def test_frames_that_never_end_are_bounded_over_all_connections(run):
    start = b"\x00\xf0\x00\x00\x00\x00\x00\x02{}" + bytes(1 << 20)

    async def main() -> None:
        async with serving(limits=Limits(unfinished=8 << 20)) as listener, connected(listener) as connection:
            clients = [await raw(listener) for _ in range(12)]
            for _, writer in clients:
                writer.write(start)
            await until(lambda: len(listener.peers) < 12)
            assert (await connection.call(Command(ECHO))).code == 0
            for _, writer in clients:
                writer.close()

    run(main())


def test_stopping_waits_for_what_was_begun_and_refuses_the_rest(run):
    gate: asyncio.Event

    async def held(command: Command, _peer: Peer) -> Command:
        await gate.wait()
        return command.reply(0, "done")

    async def main() -> tuple[Command, Command, Command]:
        nonlocal gate
        gate = asyncio.Event()
        listener = Listener("127.0.0.1", 0, {NEVER: held, ECHO: echo})
        await listener.start()
        connection = await Connection.open(listener.address)
        begun = asyncio.ensure_future(connection.call(Command(NEVER)))
        await until(lambda: any(peer.in_flight for peer in listener.peers))
        stopping = asyncio.ensure_future(listener.stop(30))
        await asyncio.sleep(0)
        new = await connection.call(Command(ECHO))
        old = await connection.call(Command(ECHO, version=407))
        gate.set()
        await stopping
        assert connection.peer.closed
        return await begun, new, old

    begun, new, old = run(main())
    assert begun.remark == "done"
    assert (new.code, new.remark, old.code) == (
        ResponseCode.GO_AWAY,
        "please go away",
        ResponseCode.SERVICE_NOT_AVAILABLE,
    )


def test_a_client_that_never_reads_does_not_keep_a_listener_from_stopping(run, monkeypatch, caplog):
    monkeypatch.setattr(connections, "CLOSE_SECONDS", 0.05)
    caplog.set_level("INFO")

    async def main() -> None:
        listener = Listener("127.0.0.1", 0, HANDLERS)
        await listener.start()
        with socket.create_connection(("127.0.0.1", listener.port)) as deaf:
            deaf.sendall(frame(Command(BIG)) * 50)
            await until(lambda: any(peer._write_paused for peer in listener.peers))
            await listener.stop()
            assert not listener.peers

    run(main())
    assert "reason=the listener is stopped" in caplog.text


def test_a_listener_that_does_not_listen_can_be_stopped(run):
    async def main() -> None:
        never_started = Listener("127.0.0.1", 0, HANDLERS)
        await never_started.stop()
        async with serving() as listener:
            taken = Listener("127.0.0.1", listener.port, HANDLERS)
            with pytest.raises(UsageError):
                await taken.start()
            await taken.stop()
            await listener.stop()

    run(main())


def test_requests_of_a_client_that_left_are_ended_and_those_that_waited_are_not_begun(run):
    begun = 0

    async def main() -> None:
        gate = asyncio.Event()

        async def waits(command: Command, _peer: Peer) -> Command:
            nonlocal begun
            begun += 1
            await gate.wait()
            return command.reply(0)

        peers: list[Peer] = []
        handlers: dict[int, Handler] = {NEVER: waits, ECHO: echo}
        async with serving(handlers, limits=Limits(in_flight=1), opened=peers.append) as listener:
            with socket.create_connection(("127.0.0.1", listener.port)) as client:
                client.sendall(frame(Command(NEVER)) * 3)
                await until(lambda: begun == 1)
            peers[0].abort("the test ends it")  # reading is paused, so the loop does not see the end by itself
            await until(lambda: not listener.peers)
            gate.set()
            await until(lambda: not peers[0].in_flight)
            async with connected(listener) as connection:
                assert (await connection.call(Command(ECHO))).code == 0

    run(main())
    assert begun == 1


def test_a_request_that_cannot_be_written_is_an_error_of_its_caller(run):
    async def main() -> None:
        peers: list[Peer] = []
        async with serving(opened=peers.append) as listener, connected(listener) as connection:
            await until(lambda: bool(peers))
            unwritable: Any = {"k": 5}
            with pytest.raises(LocalProtocolError, match="expected texts, found 5"):
                await peers[0].request(Command(ECHO, fields=unwritable))
            assert (await connection.call(Command(ECHO))).code == 0

    run(main())


def test_a_connection_without_an_address_is_served(run):
    async def main() -> None:
        here, there = socket.socketpair()
        listener = Listener("127.0.0.1", 0, HANDLERS)
        await asyncio.get_running_loop().create_connection(lambda: Peer(listener._endpoint), sock=there)
        reader, writer = await asyncio.open_connection(sock=here)
        writer.write(frame(Command(ECHO, body=b"body")))
        assert (await reader.readexactly(8))[4:5] == b"\0"
        assert [(peer.host, peer.port) for peer in listener.peers] == [("", 0)]
        writer.close()
        await listener.stop()

    run(main())


def test_a_guard_answers_in_place_of_the_handler(run):
    def guard(command: Command, peer: Peer) -> Answer:
        return None if "key" in command.fields else command.reply(16, "no key")

    async def main() -> list[int]:
        async with serving(guard=guard) as listener, connected(listener) as connection:
            return [(await connection.call(Command(ECHO, fields=fields))).code for fields in ({}, {"key": "1"})]

    assert run(main()) == [16, 0]


def test_a_port_in_use_is_an_error_of_one_line(run):
    async def main() -> None:
        async with serving() as listener:
            with pytest.raises(PortInUseError, match="cannot listen on 127") as caught:
                await Listener("127.0.0.1", listener.port, {}).start()
            assert caught.value.port == listener.port

    run(main())


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"], ids=["IPv4", "IPv6"])
def test_peers_have_host_and_port(run, host):
    seen: list[tuple[str, str, int]] = []

    async def main() -> None:
        listener = Listener(
            host, 0, {ECHO: echo}, opened=lambda peer: seen.append((peer.address, peer.host, peer.port))
        )
        try:
            await listener.start()
        except UsageError:
            pytest.skip(f"no {host} here")
        async with connected(listener) as connection:
            await connection.call(Command(ECHO))
        await listener.stop()

    run(main())
    assert seen[0][0] == f"{host}:{seen[0][2]}"
    assert seen[0][1] == host


def test_many_idle_connections_cost_little_and_others_are_served(run, tracked_memory):
    async def main() -> None:
        async with serving() as listener:
            sockets: list[socket.socket] = []
            before = tracked_memory()
            for _ in range(200):
                sockets.append(socket.create_connection(("127.0.0.1", listener.port)))
                await asyncio.sleep(0)
            await until(lambda: len(listener.peers) == 200)
            assert (tracked_memory() - before) / 200 < 8000
            async with connected(listener) as connection:
                assert (await connection.call(Command(ECHO))).code == 0
            for one in sockets:
                one.close()

    run(main())


@pytest.fixture
def tracked_memory() -> Any:
    import tracemalloc

    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()


def test_the_loop_is_uvloop_where_it_is_installed():
    uvloop = pytest.importorskip("uvloop")
    assert loop_factory() is uvloop.new_event_loop


def test_the_loop_is_asyncio_s_where_uvloop_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert loop_factory() is asyncio.new_event_loop


@pytest.mark.parametrize(
    ("address", "parsed"),
    [
        ("127.0.0.1:9876", ("127.0.0.1", 9876)),
        ("[::1]:65535", ("::1", 65535)),
        ("broker-a.example:1", ("broker-a.example", 1)),
    ],
)
def test_an_address_is_a_host_and_a_port(address, parsed):
    assert parse_address(address) == parsed


@pytest.mark.parametrize(
    "address",
    ["", ":", ":1", "a", "a:", "a:x", "a:-1", "a:65536", "a:\u0661", "a..b:1", f"{'a' * 64}:1", f"a:{'9' * 5000}"],
)
def test_what_is_no_address_is_refused(address):
    with pytest.raises(UsageError, match="expected"):
        parse_address(address)


@pytest.mark.parametrize("host", ["a..b", "a" * 64, "nowhere.invalid"])
def test_a_host_that_cannot_be_is_refused(host, run):
    async def main():
        with pytest.raises(UsageError, match=f"cannot listen on {host}"):
            await Listener(host, 0, {}).start()

    run(main())
    with pytest.raises(UsageError, match=r"expected the name or address of a host|cannot be resolved"):
        address_of(host)
