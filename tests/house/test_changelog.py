"""The newest release in the changelog is the version of the package."""

import re

import mqtool
from tests.house.modules import ROOT

HEADING = re.compile(r"^## \[(.+?)\](?: - (\d{4}-\d{2}-\d{2}))?$", re.MULTILINE)


def headings() -> list[tuple[str, str]]:
    return HEADING.findall((ROOT / "CHANGELOG.md").read_text("utf-8"))


def test_the_newest_release_in_the_changelog_is_the_version_of_the_package():
    first, *releases = headings()
    assert first == ("Unreleased", "")
    assert {version for version, _ in releases[:1]} <= {mqtool.__version__}  # none before the first tag


def test_every_release_has_a_date_and_they_descend():
    dates = [date for _, date in headings()[1:]]
    assert all(dates)
    assert dates == sorted(dates, reverse=True)
