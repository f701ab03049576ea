"""The error of experiments with real jobs. Its text says what is wrong, where, and what to do."""

from __future__ import annotations

from slurm.errors import MiniClusterError


class ExperimentError(MiniClusterError):
    """A job failed or took too long, another policy decided, or a file cannot be used; the text has the end of the job's output."""
