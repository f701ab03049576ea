"""Admin comments without birthmarks, which no test can foretell."""

from __future__ import annotations

import re

_BIRTHMARK = re.compile(r"(?<![^\s=])headway:id=[0-9a-z]{1,16}(?: |$)")


def without_birthmark(comment: str) -> str:
    """Return an admin comment, or a whole record, as if the job had no birthmark. It must not have two."""
    plain, found = _BIRTHMARK.subn("", comment)
    assert found < 2, comment
    return plain.rstrip() if found else comment
