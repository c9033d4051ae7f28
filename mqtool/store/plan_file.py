"""The file of a plan: a JSON document with a digest, and the errors that refuse it.

Changes of a store (`mqtool.repair.plan`) and consumer offsets on a running broker (`mqtool.server.offsets`) are
planned in such files. Manifests of backups have the same digest.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mqtool.errors import RefusedError


def canonical(value: Any) -> str:
    """Returns a value as JSON in its only form: sorted, without blanks."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def digest_of(body: Mapping[str, Any]) -> str:
    """Returns the SHA-256 of all fields of a plan but the digest."""
    return hashlib.sha256(canonical(body).encode()).hexdigest()


def sealed(body: Mapping[str, Any]) -> str:
    """Returns the text of a file: all fields, then the digest of them."""
    return json.dumps({**body, "digest": digest_of(body)}, indent=1) + "\n"


def check_version(document: Mapping[str, Any], expected: int, path: Path) -> None:
    """Raises RefusedError if a plan has another version than this release reads."""
    if document.get("schema_version") != expected:
        version = str(document.get("schema_version"))[:20]
        raise RefusedError(
            "plan-version", f"expected version {expected}, found {version}; run `mqtool plan` again", path
        )


def wrong_field(error: Exception, path: Path) -> RefusedError:
    """Returns the error for a plan that lacks a field or has one of a wrong type."""
    return RefusedError("plan-unreadable", f"a field is missing or has the wrong type: {error}", path)


def edited(path: Path) -> RefusedError:
    """Returns the error for a plan whose digest differs from the one that it states."""
    return RefusedError("plan-edited", "it was edited, so its digest differs; run `mqtool plan` again", path)
