"""Versions of RocketMQ as users write them."""

import pytest

from mqtool.errors import UsageError
from mqtool.formats import release


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4.9", (4, 9)),
        ("4.9.7", (4, 9)),
        ("5.1", (5, 1)),
        ("5.5.0", (5, 5)),
        ("5.10", (5, 10)),
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
