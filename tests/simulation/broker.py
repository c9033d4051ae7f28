"""One broker with its services through kills, cut connections and restarts; clients remember what they were promised.

Producers, delayed messages, timers, transactions with check-backs, and consumers that commit their offsets talk to the real
broker over the real protocol; only time, network, disk and the end of the process are simulated.
"""

import asyncio
import json
import random
from collections import Counter, defaultdict
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mqtool.engine import Compat, MessageStore, open_store
from mqtool.engine.config_files import ConfigFiles
from mqtool.protocol.command import Command
from mqtool.server.broker.config import BrokerSettings
from mqtool.server.broker.service import BrokerService
from mqtool.server.net.peer import Endpoint, Peer
from tests.simulation.disk import Killed, SimulatedDisk
from tests.simulation.loop import LoopClock, SimulatedLoop, simulated_time
from tests.simulation.network import Network
from tests.support.engine import findings_of, small_options
from tests.support.engine_faults import kill
from tests.support.remoting import Answer, records

SEND, PULL, QUERY_OFFSET, UPDATE_OFFSET, CREATE_TOPIC, HEARTBEAT, END, CHECK = 310, 11, 14, 15, 17, 34, 37, 39
COMMIT, ROLLBACK = 8, 12
PLAIN, DELAYED, TIMED, TRANSACTIONS = "Plain", "Delayed", "Timed", "Transactions"
QUEUES = 2
LIVES = 3
SETTINGS = {
    "messageDelayLevel": "1s 5s",
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "2000",
    "flushConsumerOffsetInterval": "1000",
    "flushDelayOffsetInterval": "1000",
    "autoCreateTopicEnable": "true",
}
PERSISTED_S = 3.0
"""After this time a committed offset is on the disk: the interval of SETTINGS, the writing, and some."""


GROUP = {
    "groupName": "G",
    "consumeType": "CONSUME_PASSIVELY",
    "messageModel": "CLUSTERING",
    "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
    "unitMode": False,
    "subscriptionDataSet": [],
}


@dataclass
class Promises:
    """What clients were answered.

    Attributes:
        stored: body by topic, queue and queue offset of ordinary messages.
        delayed, timed: bodies whose send was acknowledged.
        decided: decision by body of a transaction whose half was acknowledged; the producer holds to it when asked.
        commits: time, offset, and whether it was acknowledged, of each commit by queue.
    """

    stored: dict[tuple[str, int], dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    delayed: set[bytes] = field(default_factory=set)
    timed: set[bytes] = field(default_factory=set)
    decided: dict[bytes, int] = field(default_factory=dict)
    commits: dict[int, list[tuple[float, int, bool]]] = field(default_factory=lambda: defaultdict(list))


class BrokerRun:
    """One run; see the module."""

    def __init__(self, root: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.disk = SimulatedDisk(self.chance)
        self.root = root
        self.promises = Promises()
        self.decisions: dict[bytes, int] = {}
        self.number = self.kills = self.faults = 0
        self.now = 0.0
        compat = self.chance.choice([Compat.V4_9, Compat.V5_5])
        self.options = small_options(
            compat=compat, commit_log_file_size=65536, consume_queue_file_size=2000, index_slots=50, index_entries=200
        )

    def run(self) -> None:
        """Several lives of the process, then a quiet one in which everything due is delivered and checked."""
        for _ in range(LIVES):
            self._life(self._busy, can_die=True)
        self._life(self._settled, can_die=False)
        # 4.9 recovers before it loads the delay levels: units that recovery dispatches have no delivery time.
        declared = ("queue-wrong-tags",) if self.options.release < (5, 5) and self.kills else ()
        found = findings_of(self.root, self.options, *declared)
        assert found == [], found

    # -- one life of the process ---------------------------------------------------------------------------------

    def _life(self, scene: "Any", *, can_die: bool) -> None:
        loop = SimulatedLoop(self.chance, self.now)
        asyncio.set_event_loop(loop)
        store: MessageStore | None = None
        self.disk.heal()
        dies = can_die and self.chance.random() < 0.8
        with simulated_time(loop):
            try:
                store = open_store(self.root, self.options, clock=LoopClock(loop), files=self.disk, background=False)
                if dies and self.chance.random() < 0.5:
                    self.disk.kill_at = self.disk.operations + self.chance.randrange(1, 300)
                loop.run_until_complete(self._broker(loop, store, scene, dies=dies))
                store.close()
            except Killed:
                self.kills += 1
                self.faults += 1
                self.disk.heal()
                if store is not None and not store._closed:
                    kill(store)
        self.now = loop.now + 1

    async def _broker(self, loop: SimulatedLoop, store: MessageStore, scene: Any, *, dies: bool) -> None:
        service = BrokerService(store, BrokerSettings(SETTINGS), "127.0.0.1:10911")
        broker = service.broker
        broker.persister.configs._files = self.disk
        assert isinstance(broker.persister.configs, ConfigFiles)
        await service.start()
        network = Network(loop, self.chance)
        endpoint = Endpoint(service.handlers(), opened=lambda peer: peer.on_close(broker.clients.forget))
        pump = loop.create_task(self._pump(store))
        clients = Clients(self, network, endpoint)
        if dies and self.disk.kill_at is None:
            loop.call_later(self.chance.random() * 12, self._die)
        await scene(clients)
        pump.cancel()
        await service.stop()

    def _die(self) -> None:
        raise Killed

    async def _pump(self, store: MessageStore) -> None:
        """Does what the store's threads do."""
        turns = 0
        while True:
            store.dispatch()
            turns += 1
            if turns % 20 == 0:
                store.flush()
            await asyncio.sleep(self.chance.choice([0.002, 0.01, 0.05]))

    # -- scenes --------------------------------------------------------------------------------------------------

    async def _busy(self, clients: "Clients") -> None:
        await clients.prepare()
        clients.network.cut_rate = self.chance.choice([0.0, 0.0, 0.02])
        work: list[Coroutine[Any, Any, None]] = [
            clients.produce(),
            clients.produce_delayed(),
            clients.produce_transactions(),
            clients.produce_timed(),
            clients.consume(),
        ]
        await asyncio.gather(*work)

    async def _settled(self, clients: "Clients") -> None:
        await clients.prepare()
        await clients.check_offsets()
        await asyncio.sleep(60)  # every delay, and every check of a transaction, is over by now
        promises = self.promises
        for (topic, queue_id), messages in promises.stored.items():
            found = await clients.read(topic, queue_id)
            lost = [place for place, body in messages.items() if found.get(place) != body]
            assert not lost, f"{topic}/{queue_id}: acknowledged and not served: {lost}"
        self._check_once(await clients.bodies(DELAYED), promises.delayed, "delayed")
        self._check_once(await clients.bodies(TIMED), promises.timed, "timed")
        delivered = await clients.bodies(TRANSACTIONS)
        committed = {body for body, decision in promises.decided.items() if decision == COMMIT}
        self._check_once(delivered, committed, "committed")
        rolled_back = {body for body, decision in self.decisions.items() if decision == ROLLBACK}
        assert not rolled_back & delivered.keys(), "a transaction that was rolled back was delivered"

    def _check_once(self, delivered: Counter[bytes], promised: set[bytes], what: str) -> None:
        missing = sorted(promised - delivered.keys())
        assert not missing, f"{what} and never delivered: {missing}"
        most = 1 + self.kills  # a kill may come between a delivery and the note that it was made
        often = {body: count for body, count in delivered.items() if count > most}
        assert not often, f"{what}, delivered more often than {most} times: {often}"


class Clients:
    """Producers and consumers of one life."""

    def __init__(self, run: BrokerRun, network: Network, server: Endpoint) -> None:
        self.run, self.network, self._server = run, network, server
        self._mine = Endpoint({CHECK: self._checked})
        self._peer: Peer | None = None

    async def call(self, code: int, body: bytes = b"", **fields: object) -> Command:
        """Sends a request over a connection that is made anew if it broke; raises OSError if no answer comes."""
        if self._peer is None or self._peer.closed:
            self._peer = Peer(self._mine)
            self.network.connect(self._peer, Peer(self._server))
            await self._heartbeat()
        texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in fields.items()}
        return await self._peer.request(Command(code, fields=texts, body=body), 5.0)

    async def ask(self, code: int, **fields: object) -> Command:
        """Sends a request that may be repeated until an answer comes."""
        while True:
            try:
                return await self.call(code, **fields)
            except OSError:
                self.run.faults += 1

    async def _heartbeat(self) -> None:
        assert self._peer is not None
        data = {"clientID": "tx@1", "producerDataSet": [{"groupName": "PTx"}], "consumerDataSet": [GROUP]}
        try:
            await self._peer.request(Command(HEARTBEAT, body=json.dumps(data).encode()), 5.0)
        except OSError:
            self._peer.abort("no heartbeat")

    async def prepare(self) -> None:
        for topic in (PLAIN, DELAYED, TIMED, TRANSACTIONS):
            answer = await self.ask(
                CREATE_TOPIC,
                topic=topic,
                defaultTopic="TBW102",
                readQueueNums=QUEUES,
                writeQueueNums=QUEUES,
                perm=6,
                topicFilterType="SINGLE_TAG",
                topicSysFlag=0,
                order=False,
            )
            assert answer.code == 0, answer.remark

    def _body(self) -> bytes:
        self.run.number += 1
        return b"message %d" % self.run.number

    async def _send(
        self, topic: str, queue_id: int, body: bytes, group: str = "P", sys_flag: int = 0, **given: str
    ) -> Any:
        """Sends a message; returns the answer if it was stored, None if nobody can know."""
        properties = {"UNIQ_KEY": body.hex().ljust(32, "0").upper(), "WAIT": "true", **given}
        text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
        born = int(self.network.loop.wall() * 1000)
        header = {"a": group, "b": topic, "c": "TBW102", "d": QUEUES, "e": queue_id, "f": sys_flag, "g": born, "h": 0}
        try:
            answer = await self.call(SEND, body, **header, i=text, j=0, k=False, m=False)
        except OSError:
            self.run.faults += 1
            return None
        return answer if answer.code == 0 else None

    async def _pause(self) -> None:
        await asyncio.sleep(self.run.chance.choice([0.0, 0.01, 0.3]))

    async def produce(self) -> None:
        for _ in range(self.run.chance.randrange(40)):
            queue_id, body = self.run.chance.randrange(QUEUES), self._body()
            answer = await self._send(PLAIN, queue_id, body)
            if answer is not None:
                place, held = int(answer.fields["queueOffset"]), self.run.promises.stored[PLAIN, queue_id]
                assert place not in held, "two messages were acknowledged at one place"
                held[place] = body
            await self._pause()

    async def produce_delayed(self) -> None:
        for _ in range(self.run.chance.randrange(15)):
            body = self._body()
            answer = await self._send(DELAYED, 0, body, DELAY=str(self.run.chance.choice([1, 2])))
            if answer is not None:
                self.run.promises.delayed.add(body)
            await self._pause()

    async def produce_timed(self) -> None:
        """Sends messages for the timer; one of 4.9 has none and stores them at once."""
        for _ in range(self.run.chance.randrange(15)):
            body = self._body()
            if await self._send(TIMED, 0, body, TIMER_DELAY_MS=str(self.run.chance.randrange(200, 30_000))) is not None:
                self.run.promises.timed.add(body)
            await self._pause()

    async def produce_transactions(self) -> None:
        for _ in range(self.run.chance.randrange(12)):
            body = self._body()
            decision = self.run.decisions[body] = self.run.chance.choice([COMMIT, ROLLBACK])
            half = await self._send(TRANSACTIONS, 0, body, "PTx", 4, TRAN_MSG="true", PGROUP="PTx")
            if half is None:
                continue
            self.run.promises.decided[body] = decision
            if self.run.chance.random() < 0.7:
                physical = int(half.fields["msgId"][-16:], 16)
                await self._end(physical, int(half.fields["queueOffset"]), decision)
            await self._pause()

    async def _end(self, physical: int, queue_offset: int, decision: int) -> None:
        try:
            await self.call(
                END,
                producerGroup="PTx",
                commitLogOffset=physical,
                tranStateTableOffset=queue_offset,
                commitOrRollback=decision,
                fromTransactionCheck=False,
                msgId="",
            )
        except OSError:
            self.run.faults += 1  # the broker will ask

    def _checked(self, command: Command, _peer: Peer) -> None:
        """The broker asks what became of a transaction: the producer says what it decided."""
        ((_, body),) = records(_answer(command))
        place = int(command.fields["commitLogOffset"]), int(command.fields["tranStateTableOffset"])
        task = asyncio.ensure_future(self._end(*place, self.run.decisions[body]))
        self._asked = [*getattr(self, "_asked", []), task]

    async def consume(self) -> None:
        await self.check_offsets()
        for _ in range(self.run.chance.randrange(20)):
            queue_id = self.run.chance.randrange(QUEUES)
            commits = self.run.promises.commits[queue_id]
            last = max(self.run.promises.stored.get((PLAIN, queue_id), {}), default=-1)
            offset = min(last + 1, (commits[-1][1] if commits else 0) + self.run.chance.randrange(3))
            try:
                answer = await self.call(
                    UPDATE_OFFSET, consumerGroup="G", topic=PLAIN, queueId=queue_id, commitOffset=offset
                )
            except OSError:
                commits.append((self.network.loop.now, offset, False))  # it may have arrived
                self.run.faults += 1
                continue
            if answer.code == 0:
                commits.append((self.network.loop.now, offset, True))
            await self._pause()

    async def check_offsets(self) -> None:
        """After a start: no offset is one that nobody committed, nor older than what must be on the disk."""
        safe_until = self.run.now - 1 - PERSISTED_S  # of the process that ended last
        for queue_id, commits in self.run.promises.commits.items():
            safe = max((at for at, one in enumerate(commits) if one[2] and one[0] < safe_until), default=None)
            possible = {offset for _, offset, _ in commits[safe or 0 :]} | ({0} if safe is None else set())
            answer = await self.ask(QUERY_OFFSET, consumerGroup="G", topic=PLAIN, queueId=queue_id)
            offset = int(answer.fields["offset"]) if answer.code == 0 else 0
            assert offset in possible, f"queue {queue_id}: committed offset {offset}, expected one of {possible}"
            commits[:] = [(self.network.loop.now, offset, False)]

    async def read(self, topic: str, queue_id: int) -> dict[int, bytes]:
        """Returns every message of a queue."""
        found: dict[int, bytes] = {}
        offset = 0
        while True:
            answer = await self.call(
                PULL,
                consumerGroup="TOOLS_CONSUMER",
                topic=topic,
                queueId=queue_id,
                queueOffset=offset,
                maxMsgNums=32,
                sysFlag=4,
                commitOffset=0,
                suspendTimeoutMillis=0,
                subscription="*",
                subVersion=0,
                expressionType="TAG",
            )
            if answer.code != 0:
                return found
            for facts, body in records(_answer(answer)):
                found[facts["queue_offset"]] = body
            offset = int(answer.fields["nextBeginOffset"])

    async def bodies(self, topic: str) -> Counter[bytes]:
        """Counts the bodies of a topic."""
        return Counter([body for queue_id in range(QUEUES) for body in (await self.read(topic, queue_id)).values()])


def _answer(command: Command) -> Answer:
    return Answer(
        command.code, command.remark, command.fields, bytes(command.body), command.opaque, command.flag, command.version
    )
