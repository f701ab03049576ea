"""The node agent's settings: one flat class over one TOML file.

Unknown keys are errors, and every error names the file, the key and the mend.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from nodeagent.errors import ConfigurationError
from policies.serving.runtime.settings_file import read_settings

DEFAULT_PATH = Path("/etc/headway/agent.toml")


class AgentSettings(BaseModel):
    """Settings of headway-agent, read from /etc/headway/agent.toml."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    controller_address: Annotated[str, Field(min_length=1)]
    """Where the controller waits for agents: host:port, or unix:///path on the controller's own machine."""
    node_name: str = ""
    """Slurm's name of this node; empty = the host name up to its first dot."""
    munge: Literal["required", "automatic", "off"] = "automatic"
    """Whether the stream carries MUNGE credentials. `automatic` goes without only over Unix sockets and loopback."""
    munge_socket: Path | None = None
    """munged's socket; none = MUNGE's own default."""
    controller_uid: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Uid that the controller runs as: credentials are made readable for it alone."""
    ca_file: Path | None = None
    """PEM file of who signed the controller's TLS certificate; none = no TLS."""

    job_socket: Path = Path("/run/headway-agent/job.sock")
    """Where jobs of this node report; every user may connect. Its folder belongs to the agent's user, mode 0755."""
    identity: Literal["automatic", "cgroup", "ancestry"] = "automatic"
    """How the job of a process is found: by its cgroup, or, where Slurm runs proctrack/linuxproc, by the slurmstepd above it.
    `automatic` takes the cgroup, and ancestry only where Slurm makes no cgroups on this node."""
    max_connections: Annotated[int, Field(ge=1, le=100_000)] = 4096
    """Processes of jobs connected at a time."""
    max_connections_per_user: Annotated[int, Field(ge=1, le=100_000)] = 256
    """Of these, one user's."""
    frames_per_s: Annotated[float, Field(gt=0, le=10_000)] = 50.0
    """Frames a second that one connection may send for long; beyond, it is closed."""
    frames_burst: Annotated[int, Field(ge=1, le=100_000)] = 100
    """Frames that it may send at once."""

    report_interval_s: Annotated[float, Field(ge=0.1, le=300)] = 5.0
    """How often this node reports, until the controller tells how often."""
    steps_interval_s: Annotated[float, Field(ge=1.0, le=300)] = 1.0
    """How often every process of a job reports its optimizer steps."""
    profile_steps: Annotated[int, Field(ge=0, le=1000)] = 20
    """Optimizer steps that are profiled when a job starts, until the controller tells how many; 0 = none. Where steps are short, up
    to eight times as many, so that the profile lasts a quarter of a second."""
    throughput_window_s: Annotated[float, Field(ge=5, le=3600)] = 60.0
    """Time over which steps per second are counted."""

    gpus: Literal["required", "automatic", "off"] = "automatic"
    """Whether GPUs are read through NVML. `automatic` does where there is a driver; `required` calls its absence an error."""
    gpu_deadline_s: Annotated[float, Field(gt=0, le=60)] = 2.0
    """A reading of the GPUs that takes longer is given up, and the process that took it ended."""
    nics: tuple[str, ...] = ()
    """Network interfaces whose traffic is counted; empty = all that have hardware behind them, or, where none has, all but
    loopback and bridges."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least level that is logged."""
    log_format: Literal["console", "json"] = "console"
    """Form of the log lines on standard error."""


def load_settings(path: Path) -> AgentSettings:
    """Read and check the file. Raises ConfigurationError that names file, key and mend."""
    return read_settings(
        AgentSettings,
        path,
        ConfigurationError,
        none_there='write one with at least controller_address = "HOST:PORT"',
        example='controller_address = "headnode:9342"',
    )
