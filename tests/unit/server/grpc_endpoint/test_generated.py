"""The committed messages are what the published .proto files say, and live beside a client's own."""

import importlib.util
import subprocess
import sys

from tests.house.modules import ROOT

BOTH = """
from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, timestamp_pb2
from mqtool.protocol.rocketmq_v2 import definition, service
for known, name in ((definition.Resource, "definition.proto"), (service.QueryRouteRequest, "service.proto")):
    file = descriptor_pb2.FileDescriptorProto()
    known.DESCRIPTOR.file.CopyToProto(file)
    file.name = name
    file.dependency[:] = [one.rpartition("/")[2] if "rocketmq" in one else one for one in file.dependency]
    descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
print("both")
"""


def generator():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "proto" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generating_again_changes_nothing():
    found = generator()
    for name, content in found.generated().items():
        assert (found.PACKAGE / name).read_bytes() == content, f"run proto/generate.py: {name} is older"


def test_a_client_in_the_same_process_may_register_the_same_names():
    """The official Python client calls the same files definition.proto and service.proto."""
    ran = subprocess.run([sys.executable, "-c", BOTH], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.returncode) == ("both\n", 0), ran.stderr
