"""Generate mqtool/protocol/rocketmq_v2 from the .proto files next to this script.

    .venv/bin/python proto/generate.py            # write the files
    .venv/bin/python proto/generate.py --fetch    # take the .proto files from the published npm package first

The .proto files are those of Apache RocketMQ (apache/rocketmq-apis, Apache License 2.0), unchanged, as the npm package
`rocketmq-client-nodejs` publishes them; their licence header stays in them. The generated files are committed, so
that neither an installation nor `./setup` needs a compiler; a test generates them again and compares.
"""

import argparse
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent / "mqtool" / "protocol" / "rocketmq_v2"
PUBLISHED = "rocketmq-client-nodejs@1.0.8"
FOLDER = "apache/rocketmq/v2"
FILES = ("definition", "service")


def fetch() -> None:
    """Takes the .proto files from the published package."""
    with tempfile.TemporaryDirectory() as scratch:
        command = ["npm", "pack", PUBLISHED, "--silent", "--pack-destination", scratch]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with tarfile.open(next(Path(scratch).glob("*.tgz"))) as archive:
            for name in FILES:
                member = archive.extractfile(f"package/proto/{FOLDER}/{name}.proto")
                assert member is not None
                (HERE / FOLDER / f"{name}.proto").write_bytes(member.read())


def generated() -> dict[str, bytes]:
    """Returns the content of each generated file, by its name: descriptors in protobuf's encoding, and type stubs."""
    with tempfile.TemporaryDirectory() as scratch:
        well_known = Path(protoc.__file__).parent / "_proto"
        given = ["protoc", f"-I{HERE}", f"-I{well_known}", f"--pyi_out={scratch}", f"-o{scratch}/set"]
        if protoc.main([*given, *(f"{FOLDER}/{name}.proto" for name in FILES)]) != 0:
            raise SystemExit("protoc failed")
        descriptors = FileDescriptorSet.FromString(Path(scratch, "set").read_bytes())
        files = {}
        for name, descriptor in zip(FILES, descriptors.file, strict=True):
            files[f"{name}.binpb"] = descriptor.SerializeToString(deterministic=True)
            stub = Path(scratch, FOLDER, f"{name}_pb2.pyi").read_text("utf-8")
            stub = re.sub(
                r"from apache\.rocketmq\.v2 import (\w+)_pb2 as", r"from mqtool.protocol.rocketmq_v2 import \1 as", stub
            )
            files[f"{name}.pyi"] = re.sub(r"(?<!as )\b_Mapping\]", "_Mapping[str, object]]", stub).encode()
        return files


def main() -> int:
    """Writes the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fetch", action="store_true", help="take the .proto files from the published package first")
    if parser.parse_args().fetch:
        fetch()
    for name, content in generated().items():
        (PACKAGE / name).write_bytes(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
