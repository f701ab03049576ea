"""Tokens by which users sign in: made once, and stored as digests. A token has 256 random bits, so a plain digest suffices."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from controller.base.errors import ConfigurationError
from controller.base.text import USER_NAME
from policies.documents import DocumentError, read_text

_LINE = re.compile(r"(\S+)\s+sha256:([0-9a-f]{64})")
MOST_TOKEN = 256


def new_token(user: str) -> tuple[str, str]:
    """Return a new token for that user, and its line in the file of tokens. Raises ConfigurationError."""
    if not USER_NAME.fullmatch(user):
        raise ConfigurationError(f"{user[:40]!r} is not the name of a user; give the name that Slurm shows")
    token = secrets.token_urlsafe(32)
    return token, f"{user} sha256:{_digest(token)}"


def read_tokens(path: Path) -> Mapping[str, str]:
    """Return the user of each token's digest. Raises ConfigurationError."""
    try:
        text = read_text(path)
    except (OSError, DocumentError) as error:
        raise ConfigurationError(
            f"token_file: {path}: cannot be read: {error}; headway-web's user has to be able to read it"
        ) from error
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        parts = _LINE.fullmatch(line.strip())
        if parts is None or not USER_NAME.fullmatch(parts[1]):
            raise ConfigurationError(
                f"token_file: {path}: line {number} is not USER sha256:DIGEST; `headway-web token USER` prints such a line"
            )
        found[parts[2]] = parts[1]
    return found


def user_of(tokens: Mapping[str, str], token: str) -> str | None:
    """Return the user of a token; None: there is no such token."""
    if not 0 < len(token) <= MOST_TOKEN:
        return None
    digest = _digest(token)
    return next((user for known, user in tokens.items() if hmac.compare_digest(known, digest)), None)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
