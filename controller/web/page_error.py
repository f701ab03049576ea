"""The errors that become a page: what is wrong, and what to do."""

from __future__ import annotations

from headway_client import (
    BusyError,
    HeadwayError,
    InvalidRequestError,
    NotFoundError,
    NotPermittedError,
    Reason,
    UnavailableError,
)


class PageError(Exception):
    """The request is not answered with what it asks for.

    `text` says what is the case, in a few words; `mend` says what to do; `detail` is another program's message, or empty.
    """

    def __init__(self, status: int, text: str, mend: str, detail: str = "") -> None:
        super().__init__(detail or text)
        self.status = status
        self.text = text
        self.mend = mend
        self.detail = detail


_AGAIN = "Load the page again in a moment."
_STATUS: tuple[tuple[type[HeadwayError], int, str, str], ...] = (
    (InvalidRequestError, 400, "The request is not valid.", "Correct the address, or search for the job."),
    (NotFoundError, 404, "This job is not known.", "Check its id."),
    (NotPermittedError, 403, "You may not see this.", "Ask your operator if you should see it."),
    (BusyError, 503, "The controller is busy.", _AGAIN),
    (UnavailableError, 503, "The controller does not answer.", _AGAIN),
)
"""Kind of error, status, heading, and what to do. The error's own message follows the heading."""
_NOT_TRUSTED = (
    "The operator has to set web_user in controller.toml to headway-web's user, and to restart headway-controller."
)


def from_controller(error: HeadwayError) -> PageError:
    """Return the page for an error of the controller's client."""
    text = str(error)
    text = f"{text[:1].upper()}{text[1:]}"
    if error.reason is Reason.USER_NOT_ACCEPTED:
        return PageError(502, "The controller does not accept this page.", _NOT_TRUSTED, text)
    for kind, status, heading, mend in _STATUS:
        if isinstance(error, kind):
            return PageError(status, heading, mend, text)
    return PageError(
        502, "The controller's answer is an error.", "Tell your operator; the log of headway-controller has more.", text
    )
