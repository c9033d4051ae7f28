"""docs/checks.md is read as it is written; an entry of another form is named by its line."""

import pytest

from mqtool import guide
from mqtool.errors import UnavailableError
from mqtool.verify.catalogue import CATALOGUE, Check, checks_of
from mqtool.verify.findings import Area, Severity

PAGE = """# Checks

Words before the first area.

## index

### `index-a`

*error*: It is broken: see `x`.

**Remedy:** Do *this*.

**Next:** `mqtool info {store}`

**Runbook:** [RB-06](runbooks/RB-06.md), [RB-05](runbooks/RB-05.md)

### `index-b`

*note*: Nothing.

**Remedy:** None.

**No runbook:** No action.
"""


def test_every_field_of_an_entry_is_read():
    assert list(checks_of(PAGE)) == [
        Check(
            "index-a",
            Area.INDEX,
            Severity.ERROR,
            "It is broken: see `x`.",
            "Do *this*.",
            "mqtool info {store}",
            ("RB-06", "RB-05"),
        ),
        Check("index-b", Area.INDEX, Severity.NOTE, "Nothing.", "None.", "", (), "No action."),
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("## index", "## indices", r"line 5: expected one of commitlog, .*; found '## indices'"),
        ("*note*: ", "*notice*: ", r"line 17: expected a heading with the code, .*; found '### `index-b`'"),
        ("**Remedy:** Do", "Remedy: Do", "line 7: expected "),
        ("### `index-b`", "### index-b", "line 17: expected .*found '### index-b'"),
        ("**No runbook:** No action.\n", "", "line 17: expected "),
        ("**Runbook:** [RB-06]", "**Runbook:** RB-06 and ", "line 7: expected "),
        ("[RB-05](runbooks/RB-05.md)", "[RB-05](runbooks/RB-50.md)", "line 7: expected "),
    ],
)
def test_an_entry_of_another_form_is_an_error_at_its_line(old, new, message):
    assert old in PAGE
    with pytest.raises(UnavailableError, match=message):
        list(checks_of(PAGE.replace(old, new)))


def test_every_heading_of_the_page_is_a_code_of_its_own():
    text = guide.text_of("checks.md")
    assert len(CATALOGUE) == text.count("\n### ") > 100
    assert list(dict.fromkeys(check.area for check in CATALOGUE.values())) == [
        area for area in Area if f"\n## {area}\n" in text
    ]
