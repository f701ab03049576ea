"""The errors of this package."""

from __future__ import annotations

from controller.base.text import encodable


class HeadwayError(Exception):
    """Base of every error that the controller raises on purpose. Invariant: its text can be printed and written as JSON.

    Paths and Slurm's texts are read with `surrogateescape`, and often are part of the text.
    """

    def __init__(self, *texts: object) -> None:
        """Bytes that are no UTF-8 are shown escaped."""
        super().__init__(*(encodable(text) if isinstance(text, str) else text for text in texts))


class ConfigurationError(HeadwayError):
    """A configuration file is wrong: the text names the file, the key and the mend."""


class SlurmError(HeadwayError):
    """Slurm did not carry out a request."""


class SlurmUnavailableError(SlurmError):
    """slurmctld did not answer in time, or not at all. Another attempt later may succeed."""


class TurnLostError(SlurmUnavailableError):
    """The other one of controller and watchdog has changed jobs since this process read them: the command was not sent."""


class SlurmReplyError(SlurmError):
    """A Slurm program answered with something that this version of Headway does not understand."""


class PolicyUnavailableError(HeadwayError):
    """The policy server gave no usable answer before the deadline."""


class JournalError(HeadwayError):
    """The journal cannot be read or written."""


class PreemptionRefusedError(HeadwayError):
    """A job cannot be preempted, or not now; the text says why."""

    def __init__(self, job_id: str, why_not: str) -> None:
        """`why_not` continues the sentence that begins with "job 12"."""
        super().__init__(f"job {job_id} {why_not}")
        self.why_not = why_not
