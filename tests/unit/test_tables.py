"""A table in parts tries every case, and names each that fails."""

import pytest

from tests.support.tables import combined, in_parts


def parts_of(test):
    [mark] = test.pytestmark
    return mark.args[1]


def test_every_case_is_tried_in_a_directory_of_its_own_and_each_failure_is_named(tmp_path):
    tried = []

    @in_parts("value, other", [(1, "a"), pytest.param(2, "b", id="two"), *combined([3], "cd")], size=3)
    def check(value, tmp_path, other):
        (tmp_path / "file").touch(exist_ok=False)
        tried.append((value, other))
        assert value == 1

    first, second = parts_of(check)
    with pytest.raises(ExceptionGroup, match="2 of 3 cases failed") as failed:
        check(part=first, tmp_path=tmp_path)
    assert [error.__notes__ for error in failed.value.exceptions] == [["case two"], ["case 3-c"]]
    (tmp_path / "second").mkdir()
    with pytest.raises(ExceptionGroup, match="1 of 1"):
        check(part=second, tmp_path=tmp_path / "second")
    assert tried == [(1, "a"), (2, "b"), (3, "c"), (3, "d")]


def test_a_part_of_which_every_case_is_skipped_is_skipped():
    @in_parts("value", [1, 2, 3])
    def check(value):
        if value < 3:
            pytest.skip("small")

    [part] = parts_of(check)
    check(part=part)
    with pytest.raises(pytest.skip.Exception, match="small"):
        check(part=part[:2])
