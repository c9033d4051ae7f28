"""Versions of RocketMQ as users write them."""

import pytest

from mqtool.errors import UsageError
from mqtool.formats import release


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4.9", (4, 9, 0)),
        ("4.9.7", (4, 9, 7)),
        ("5.1", (5, 1, 0)),
        ("5.5.0", (5, 5, 0)),
        ("5.10", (5, 10, 0)),
        ("4", release.assumed_release("4.2")),
        ("5", release.assumed_release("5")),
    ],
)
def test_a_version_is_a_release_line_and_a_major_version_the_assumed_one(text, expected):
    assert release.parse(text) == expected


@pytest.mark.parametrize("text", ["", "6", "5.", " 5 . 5", "5.5.0.1", "5.x", "V5_5_0", "-5.5", "٥.٥"])
def test_anything_else_is_no_version(text):
    with pytest.raises(UsageError, match=r"expected a release such as 4\.9 or 5\.5"):
        release.parse(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4.9.3", release.V4_9),
        ("5.3", release.V5_3),
        ("5.3.1", release.V5_3),
        ("5.4.0", release.V5_4),
        ("5.5", release.V5_5),
        ("5.5.0", release.V5_5),
        ("5.5.1", release.V5_5_1),
    ],
)
def test_a_version_stands_for_the_release_that_was_measured(text, expected):
    assert release.release_of(text) == expected
    assert release.release_of(str(expected)) == expected
    assert release.release_of(release.MEASURED[expected]) == expected


@pytest.mark.parametrize("text", ["5.1", "5.5.2", "5.5.10", "6.0", "5", ""])
def test_a_release_that_was_not_measured_is_refused(text):
    with pytest.raises(UsageError, match=r"expected one of 4\.9, 5\.3, 5\.4, 5\.5, 5\.5\.1"):
        release.release_of(text)
