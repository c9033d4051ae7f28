"""The descriptor pool of the gRPC messages, separate from protobuf's default pool.

A RocketMQ client in the same process (a test with the fixture `mqtool_server`) registers the same names under other
file names in the default pool, which refuses a second registration.
"""

from typing import Any

from google.protobuf import descriptor_pool, duration_pb2, message_factory, timestamp_pb2
from google.protobuf.internal import enum_type_wrapper

_POOL = descriptor_pool.DescriptorPool()
for _known in (duration_pb2, timestamp_pb2):
    _POOL.AddSerializedFile(_known.DESCRIPTOR.serialized_pb)


def messages_of(serialized: bytes) -> dict[str, Any]:
    """Registers a file descriptor; returns its messages, enumerations and enumeration values, by name."""
    _POOL.AddSerializedFile(serialized)
    file = _POOL.FindFileByName(_name_of(serialized))
    members: dict[str, Any] = {
        name: message_factory.GetMessageClass(descriptor) for name, descriptor in file.message_types_by_name.items()
    }
    for name, enum in file.enum_types_by_name.items():
        members[name] = enum_type_wrapper.EnumTypeWrapper(enum)
        members |= {value.name: value.number for value in enum.values}
    return members


def _name_of(serialized: bytes) -> str:
    """Returns the file's name, read from the first field of its descriptor.

    Not every protobuf implementation returns the file from AddSerializedFile.
    """
    return serialized[2 : 2 + serialized[1]].decode()
