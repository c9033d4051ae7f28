"""Every file is under the Apache License 2.0: one text, one annotation that covers the tree, and no file that says otherwise."""

import hashlib
import re
import subprocess
import tomllib

from tests.house.modules import ROOT

APACHE_2 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
"""SHA-256 of the text as the Apache Software Foundation publishes it."""
FOREIGN = re.compile(
    r"SPDX-License-Id[e]ntifier: (?!Apache-2\.0\b)(\S+)|GNU (?:Lesser |Affero )?General Public License|Mozilla Public License"
    r"|Permission is hereby granted, free of charge|Redistribution and use in source and binary forms"
)
"""How other licences begin, or name themselves."""


def texts() -> dict[str, str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    code = [
        name for name in names if name and not name.startswith("fixtures/") and name != "tests/house/test_licence.py"
    ]
    return {name: (ROOT / name).read_text("utf-8", "replace") for name in code if (ROOT / name).is_file()}


def test_the_licence_is_the_text_of_the_apache_license():
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == APACHE_2


def test_one_annotation_covers_every_file_and_the_package_says_the_same():
    [annotation] = tomllib.loads((ROOT / "REUSE.toml").read_text("utf-8"))["annotations"]
    assert (annotation["path"], annotation["SPDX-License-Identifier"]) == ("**", "Apache-2.0")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert (project["license"], project["license-files"]) == ("Apache-2.0", ["LICENSE"])


def test_no_file_states_another_licence():
    found = {name: match[0] for name, text in texts().items() if (match := FOREIGN.search(text))}
    assert found == {}
