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
    """The request is not answered with what it asks for. `text` says what is the case, `mend` what to do."""

    def __init__(self, status: int, text: str, mend: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.mend = mend


_STATUS: tuple[tuple[type[HeadwayError], int, str], ...] = (
    (InvalidRequestError, 400, "Correct the address, or search for the job."),
    (NotFoundError, 404, "Check the job's id: `squeue` lists those that Slurm knows."),
    (NotPermittedError, 403, "Ask your operator if you should see it."),
    (BusyError, 503, "Load the page again in a moment."),
    (
        UnavailableError,
        503,
        "Load the page again in a moment. Jobs are not affected: Slurm schedules by itself meanwhile.",
    ),
)
_NOT_TRUSTED = (
    "The operator has to set web_user in controller.toml to headway-web's user, and to restart headway-controller."
)


def from_controller(error: HeadwayError) -> PageError:
    """Return the page for an error of the controller's client."""
    text = str(error)
    text = f"{text[:1].upper()}{text[1:]}"
    if error.reason is Reason.USER_NOT_ACCEPTED:
        return PageError(502, text, _NOT_TRUSTED)
    for kind, status, mend in _STATUS:
        if isinstance(error, kind):
            return PageError(status, text, mend)
    return PageError(502, text, "Tell your operator; the log of headway-controller has more.")
