"""Removes passwords, tokens and signatures from URLs and from error messages, so that they can be logged."""

from __future__ import annotations

import re
from typing import List
from urllib.parse import parse_qsl, unquote, urlsplit

_HIDDEN = "***"
_MIN_CHARS = 4
"""Shorter values occur in any text, and are not secret."""
_BEFORE_HOST = re.compile(r"(://)(?:[^/@\s:]*:([^?\s]*)@|[^/@\s]*@)")
"""Passwords may contain a slash or an at sign: after a colon, everything up to the last at sign is hidden, even of a path."""
_NAMED = re.compile(
    r"(?i)((?:token|secret|signature|credential|password|passwd|delegation|authorization|sig|key|keyid)['\"]?\s*[=:]\s*['\"]?)"
    r"(?:(?:bearer|basic)\s+)?[^&\s'\",;}]+"
)


def redact_url(url: str) -> str:
    """Return the URL without name and password before the host, and without everything after a question mark."""
    return _BEFORE_HOST.sub(r"\1", url.split("?", maxsplit=1)[0]).rstrip("/")


def redact_error(error: BaseException, url: str) -> str:
    """Return the first line of an error, or its type, without secrets. `url` may have secrets that the error repeats."""
    lines = str(error).splitlines()
    text = lines[0] if lines else type(error).__name__
    for secret in _secrets(url):
        text = text.replace(secret, _HIDDEN)
    return _NAMED.sub(rf"\1{_HIDDEN}", _BEFORE_HOST.sub(r"\1", text))


def _secrets(url: str) -> List[str]:
    try:
        parts = urlsplit(url)
        before_host = _BEFORE_HOST.search(url)
        undecoded = (before_host.group(2) or "") if before_host else ""
        found = [parts.password or "", undecoded, *(value for _, value in parse_qsl(parts.query))]
    except ValueError:
        return []
    spelled = {one for each in found for one in (each, unquote(each))}
    return sorted((one for one in spelled if len(one) >= _MIN_CHARS), key=len, reverse=True)
