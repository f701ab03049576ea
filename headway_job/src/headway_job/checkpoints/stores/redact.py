"""Addresses and other people's messages, fit for a log: without what lets somebody in."""

from __future__ import annotations

import re
from typing import List
from urllib.parse import parse_qsl, unquote, urlsplit

_HIDDEN = "***"
_SHORTEST = 4
"""Shorter ones would be found in any text, and are not secret."""
_BEFORE_HOST = re.compile(r"(://)(?:[^/@\s:]*:([^?\s]*)@|[^/@\s]*@)")
"""Passwords may have a slash or an at sign as it is: after a colon all is hidden up to the last at sign, be it of a path."""
_NAMED = re.compile(
    r"(?i)((?:token|secret|signature|credential|password|passwd|delegation|authorization|sig|key|keyid)['\"]?\s*[=:]\s*['\"]?)"
    r"(?:(?:bearer|basic)\s+)?[^&\s'\",;}]+"
)


def address(url: str) -> str:
    """Without the name and password before the host, and without what follows a question mark."""
    return _BEFORE_HOST.sub(r"\1", url.split("?", maxsplit=1)[0]).rstrip("/")


def told(error: BaseException, url: str) -> str:
    """An error's first line, or its kind. `url`: what may have secrets that the error repeats."""
    lines = str(error).splitlines()
    text = lines[0] if lines else type(error).__name__
    for secret in _secrets(url):
        text = text.replace(secret, _HIDDEN)
    return _NAMED.sub(rf"\1{_HIDDEN}", _BEFORE_HOST.sub(r"\1", text))


def _secrets(url: str) -> List[str]:
    try:
        parts = urlsplit(url)
        before_host = _BEFORE_HOST.search(url)
        as_it_is = (before_host.group(2) or "") if before_host else ""
        found = [parts.password or "", as_it_is, *(value for _, value in parse_qsl(parts.query))]
    except ValueError:
        return []
    spelled = {one for each in found for one in (each, unquote(each))}
    return sorted((one for one in spelled if len(one) >= _SHORTEST), key=len, reverse=True)
