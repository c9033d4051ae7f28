"""Records that hypothesis makes: every shape, odd properties, bodies of every kind, compressed ones too; made stores."""

import zlib

from hypothesis import strategies as st

from tests.support.builder import FIRST_TIME, StoreBuilder, encode

SLOTS, ENTRIES = 50, 4000
CONFIG = {"maxHashSlotNum": str(SLOTS), "maxIndexNum": str(ENTRIES)}
"""Of `varied_store`."""
PREPARED, COMMITTED, ROLLED_BACK = 4, 8, 12

i32 = st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(0, 9)
i64 = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 9)

names = st.sampled_from(
    [
        b"KEYS",
        b"TAGS",
        b"UNIQ_KEY",
        b"a",
        b"",
        "名".encode(),
        b"x" * 70,
        b'q"\\',
        b"WAIT",
        b"\xff",
    ]
)
values = st.binary(max_size=20) | st.sampled_from(
    [
        b"",
        b"v",
        b"k1 k2",
        b"  k1  ",
        b'say "so"',
        b"back\\slash",
        "käse 名 🚀".encode(),
        b"\xff\xfe",
        b"\t\n\r",
        b"true",
        b"x" * 300,
        b"\x7f",
        b"a\x01b",
        b"1" * 12,
        b"1" * 13,
    ]
)
pairs = st.lists(st.tuples(names, values), max_size=5)
joined = pairs.map(lambda found: b"".join(name + b"\1" + value + b"\2" for name, value in found))
properties = st.one_of(
    joined,
    joined.map(lambda data: data[:-1]),
    st.binary(max_size=40),
    st.just(b"KEYS\1k\2UNIQ_KEY\1" + b"7F" * 16 + b"\2TAGS\1a\2"),
)
topics = st.sampled_from(
    [
        b"T",
        b"Topic",
        b"%RETRY%group",
        b"x" * 127,
        b"L" * 128,
        b"L" * 255,
        "名".encode(),
        b'"',
        b"\xff",
    ]
)
bodies = st.binary(max_size=60) | st.sampled_from(
    [
        b"",
        b"body",
        b'{"json": "yes"}',
        b"\xff\xfe\x00",
        b"\x00",
        b"line\nline",
        b"\x7f",
        "käse 名 🚀".encode(),
        b"back\\slash",
        b"\x1f",
        b"x" * 500,
    ]
)
ports = st.sampled_from([0, 1, 10911, 65535])
shapes = st.sampled_from([0, 0, 0, 0x10, 0x20, 0x30])
compressed = st.sampled_from([0, 0, 0, 0x1, 0x301, 0x101, 0x201])


def hosts_of(size):
    """Stored hosts with an address of so many bytes."""
    return st.builds(
        lambda address, port: address + port.to_bytes(4, "big"), st.binary(min_size=size, max_size=size), ports
    )


@st.composite
def record(draw):
    """Everything of a record but its place."""
    flags = draw(shapes) | draw(compressed) | draw(st.sampled_from([0, 0, 4, 8, 12, 0x40]))
    body = draw(bodies)
    if flags & 0x1 and draw(st.booleans()):
        body = zlib.compress(body)
        flags = flags & ~0x700 | draw(st.sampled_from([0, 0x300]))
    return {
        "body": body,
        "topic": draw(topics),
        "properties": draw(properties),
        "sys_flag": flags,
        "queue_id": draw(i32),
        "flag": draw(i32),
        "queue_offset": draw(i64),
        "born_timestamp": draw(i64),
        "reconsume_times": draw(i32),
        "prepared_transaction_offset": draw(i64),
        "born_host": draw(hosts_of(16 if flags & 0x10 else 4)),
        "store_host": draw(hosts_of(16 if flags & 0x20 else 4)),
    }


records = st.lists(record(), min_size=1, max_size=12)


def log_of(made, base=0):
    """The records one behind the other, with right places and ascending store times; and where each begins."""
    data, starts = bytearray(), []
    for number, fields in enumerate(made):
        starts.append(len(data))
        data += encode(base + len(data), store_timestamp=FIRST_TIME + number, **fields)
    return bytes(data), starts


def varied_store(root, chance):
    """A store of every kind of record that passes over a log look at in their own way; `CONFIG` fits it."""
    builder = StoreBuilder(segment_size=1 << 16, slots=SLOTS, entries=ENTRIES)
    flags = [0] * 12 + [PREPARED, COMMITTED, ROLLED_BACK, 0x10]
    for number in range(700):
        builder.put(
            chance.randbytes(chance.choice((0, 1, 30, 700))),
            topic=chance.choice(("Orders", "Audit", "名" if number > 400 else "Orders")),
            queue_id=number % 3,
            tags=chance.choice(("", "TagA", "a-much-longer-tag", "x" * 7)),
            keys=chance.choice(("", f"k{number}", f"k{number} x{number % 7}", "  padded  ")),
            unique_key=f"{number:032X}" if number % 4 else "",
            step=chance.choice((0, 1, 500)),
            sys_flag=chance.choice(flags) if number > 300 else 0,
        )
    return builder.write(root)


def change_bytes(path, chance):
    """Changes one byte or a few of the part of a file that is not zeros at its end."""
    data = bytearray(path.read_bytes())
    used = len(bytes(data).rstrip(b"\0"))
    for _ in range(chance.choice((1, 1, 5))):
        data[chance.randrange(used)] ^= chance.choice((1, 0x80, 0xFF))
    path.write_bytes(data)
