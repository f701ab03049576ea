"""The errors of this package. Programs tell them apart by class and by `reason`, never by their text."""

from __future__ import annotations

from headway_client.words import Reason


class HeadwayError(Exception):
    """Base of every error that this package raises on purpose. The text says what was wrong, and what to do."""

    def __init__(self, text: str, reason: Reason | None = None) -> None:
        super().__init__(text)
        self.reason = reason
        """The controller's reason; None when the controller gave none, or the error is not an answer."""


class InvalidRequestError(HeadwayError, ValueError):
    """The request is invalid: an argument is out of range, or is not a job id."""


class UnavailableError(HeadwayError):
    """No controller answers. Jobs are not affected: without a controller, Slurm schedules by itself."""


class NotReadyError(UnavailableError):
    """The controller runs, but has not read Slurm yet. Try again in a moment."""


class AnswerTimeoutError(UnavailableError, TimeoutError):
    """The time limit of the call has passed without a whole answer."""


class WaitTimeoutError(HeadwayError, TimeoutError):
    """The job or the preemption did not reach the awaited state in time. The controller answered meanwhile."""


class NotPermittedError(HeadwayError):
    """This user may not make the call, or not through this socket."""


class NotFoundError(HeadwayError):
    """The controller does not know the job, or has measured nothing of it."""


class RefusedError(HeadwayError):
    """The controller did not carry out the request, because of the state of the job or of the cluster. Nothing was changed."""


class BusyError(HeadwayError):
    """Too many calls of this user, or of all users, are open; or the user has requested too many changes within the hour."""


class VersionError(HeadwayError):
    """The controller speaks another version of the protocol, or does not know the call. Nothing was changed."""


class ControllerError(HeadwayError):
    """Something failed inside the controller."""


class ProtocolError(HeadwayError):
    """The answer is damaged, or was not sent by a controller."""


class AnswerTooLargeError(ProtocolError):
    """The answer is larger than `max_answer_bytes`."""


class ClosedError(HeadwayError):
    """The client was closed."""
