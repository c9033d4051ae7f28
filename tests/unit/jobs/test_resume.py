"""Files that say how far a run has come: what earlier runs wrote is read, anything else is refused and kept."""

import json

import pytest

from mqtool.errors import ConfigFileError, UsageError
from mqtool.jobs import resume
from mqtool.jobs.resume import ResumeFile, TaskLog, open_after

WRITTEN = b'{"version": 1, "of": {"store": "/s"}, "state": {"next": 7}}'
"""A state as every release so far wrote it."""


def test_a_state_is_read_and_written_as_ever(tmp_path):
    path = tmp_path / "state"
    path.write_bytes(WRITTEN)
    file = ResumeFile(path, 1, "a rebuild")
    fields = file.load()
    assert fields == {"of": {"store": "/s"}, "state": {"next": 7}}
    file.save(fields)
    assert path.read_bytes() == WRITTEN
    assert [one.name for one in tmp_path.iterdir()] == ["state"]


def test_a_run_that_ended_leaves_nothing(tmp_path):
    file = ResumeFile(tmp_path / "state", 1, "a rebuild")
    assert file.load() is None
    file.save({})
    (tmp_path / ".state.99-1.part").write_bytes(b"of a run that was killed")
    file.remove()
    file.remove()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "Expecting value"),
        (b"\x80abc", "decode"),
        (b"[1]", "expected a JSON object with a version"),
        (b'{"state": {}}', "expected a JSON object with a version"),
        (b'{"version": 2, "state": {}}', "expected version 1, found 2"),
        (b"[" * 100_000, "recursion|Stack overflow"),
    ],
)
def test_another_file_is_refused_and_stays(tmp_path, data, words):
    path = tmp_path / "state"
    path.write_bytes(data)
    with pytest.raises(ConfigFileError, match=f"state: is not the state of a replay: .*{words}"):
        ResumeFile(path, 1, "a replay").load()
    assert path.read_bytes() == data


def test_a_state_inside_a_larger_document_is_checked_too():
    assert resume.fields_of({"version": 3, "a": 1}, 3, "an export", "lake") == {"a": 1}
    with pytest.raises(ConfigFileError, match="lake: is not the state of an export: expected version 3, found 4"):
        resume.fields_of({"version": 4, "a": 1}, 3, "an export", "lake")


HEAD = {"mqtool": "0.1", "store": "abc"}
LINES = b'{"mqtool": "0.1", "store": "abc"}\n["segment 0-1", {"n": 1}]\n["segment 1-2", {"n": 2}]\n'


def log(path, head=HEAD):
    return TaskLog(path, head, "verify", lambda result: result["n"])


def test_results_are_read_and_written_as_ever(tmp_path):
    path = tmp_path / "state"
    with log(path) as first:
        assert first.done == {}
        first.add("segment 0-1", {"n": 1})
        first.add("segment 1-2", {"n": 2})
    assert path.read_bytes() == LINES
    with log(path) as again:
        assert again.done == {"segment 0-1": 1, "segment 1-2": 2}
    assert path.read_bytes() == LINES


@pytest.mark.parametrize("length", range(len(LINES) + 1))
def test_a_file_cut_off_anywhere_is_gone_on_with(tmp_path, length):
    path = tmp_path / "state"
    path.write_bytes(LINES[:length])
    ends = [at + 1 for at, byte in enumerate(LINES) if byte == ord("\n")]
    if 0 < length < ends[0] - 1:  # not even the first line: it could be any file
        with pytest.raises(UsageError, match="is not a state file of verify"):
            log(path)
        assert path.read_bytes() == LINES[:length]
        return
    with log(path) as found:
        assert len(found.done) == max(0, sum(end <= length for end in ends) - 1)
        for key, number in (("segment 0-1", 1), ("segment 1-2", 2)):
            if key not in found.done:
                found.add(key, {"n": number})
    with log(path) as again:
        assert again.done == {"segment 0-1": 1, "segment 1-2": 2}


def test_results_of_something_else_do_not_count(tmp_path):
    path = tmp_path / "state"
    path.write_bytes(LINES)
    with log(path, {**HEAD, "store": "other"}) as found:
        assert found.done == {}
    assert json.loads(path.read_bytes()) == {"mqtool": "0.1", "store": "other"}


def test_a_line_that_the_command_did_not_write_is_named(tmp_path):
    path = tmp_path / "state"
    path.write_bytes(LINES + b'["segment 2-3", 5]\n')
    with pytest.raises(UsageError, match=f"position {len(LINES)}: contains data that verify did not write"):
        log(path)


def test_what_follows_the_kept_bytes_is_cut_off(tmp_path):
    path = tmp_path / "ids"
    path.write_bytes(b"one\ntwo\nth")
    with open_after(path, 8) as file:
        file.write(b"three\n")
    assert path.read_bytes() == b"one\ntwo\nthree\n"
    with pytest.raises(UsageError, match="expected at least 99 bytes, which the previous run wrote, found 14"):
        open_after(path, 99)
    with open_after(tmp_path / "new", 0) as file:
        assert file.tell() == 0
