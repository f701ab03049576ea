"""The form in which scontrol prints times, so that no user's text is mistaken for a time of Slurm's."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from controller.base.errors import SlurmReplyError
from controller.base.text import clip

_MOST_DIGITS = 15
"""Maximum number of digits of a time in seconds: a float has them all."""


@dataclass(frozen=True, slots=True)
class Clockface:
    """Format in which scontrol must write times: a secret token, then the seconds since the Unix epoch.

    Slurm 22.05 gives a time 32 bytes, ten of which the seconds need.
    """

    token: str

    @staticmethod
    def secret() -> Clockface:
        """Return a format with a new token."""
        return Clockface(f"t{secrets.token_hex(8)}.")

    @property
    def format(self) -> str:
        """Value of SLURM_TIME_FORMAT."""
        return f"{self.token}%s"

    def seconds(self, text: str | None) -> float | None:
        """Return the seconds; None for "Unknown", "None" and "N/A". Raises SlurmReplyError for a time in any other form."""
        if text is None or text in {"Unknown", "None", "N/A", "(null)", ""}:
            return None
        digits = text.removeprefix(self.token)
        if digits is text or not digits.isdecimal() or len(digits) > _MOST_DIGITS:
            raise SlurmReplyError(f"not a time in the form that SLURM_TIME_FORMAT asked for: {clip(text, 80)}")
        return float(digits)
