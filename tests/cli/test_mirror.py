"""`mqtool mirror` beside a master that is played by the files of a real one."""

import asyncio
import json
import signal
import sys
from pathlib import Path

from tests.support.ha_master import Master, playing


async def run(*arguments: str, stop_when: Path | None = None) -> tuple[int, str, str]:
    """Runs the command; ends it in order once a file is there."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "mqtool",
        "mirror",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    if stop_when is not None:
        while not stop_when.exists():
            await asyncio.sleep(0.02)
        process.send_signal(signal.SIGTERM)
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


def test_once_ends_with_a_whole_copy(tmp_path):
    async def main() -> tuple[Master, list[dict[str, object]]]:
        master, found = Master("ha-5.5.0"), []
        async with playing(master) as address:
            for _ in range(2):
                code, out, err = await run(address, "-o", str(tmp_path / "copy"), "--once", "--format", "json")
                assert code == 0, err
                found.append(json.loads(out))
        return master, found

    master, (first, again) = asyncio.run(main())
    assert (first["begun_at"], first["end"], first["caught_up"], first["broker"]) == (0, master.end, True, "broker-a")
    assert (again["begun_at"], again["end"]) == (master.end, master.end)
    copied = b"".join(path.read_bytes() for path in sorted((tmp_path / "copy" / "commitlog").iterdir()))
    assert copied[: master.end] == master.log[: master.end]
    assert (tmp_path / "copy" / "config" / "topics.json").exists()


def test_a_signal_ends_it_in_order(tmp_path):
    async def main() -> tuple[int, str, str]:
        async with playing(Master("ha-4.9.7")) as address:
            return await run(
                address,
                "-o",
                str(tmp_path / "copy"),
                "--format",
                "json",
                stop_when=tmp_path / "copy" / "config" / "subscriptionGroup.json",
            )

    code, out, err = asyncio.run(main())
    assert code == 0, err
    assert json.loads(out)["store"] == str(tmp_path / "copy")
    assert not (tmp_path / "copy" / "abort").exists()


def test_a_master_that_is_not_there_is_an_error_of_one_line(tmp_path):
    code, out, err = asyncio.run(run("127.0.0.1:1", "-o", str(tmp_path / "copy")))
    assert (code, out) == (6, "")
    assert "cannot connect to 127.0.0.1:1" in err
    assert "Traceback" not in err
    assert not (tmp_path / "copy").exists()
