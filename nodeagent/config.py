"""The node agent's settings: one flat class over one TOML file.

Unknown keys are errors. Each error names the file, the key and the correction.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from nodeagent.errors import ConfigurationError
from policies.serving.runtime.settings_file import read_settings

DEFAULT_PATH = Path("/etc/headway/agent.toml")


class AgentSettings(BaseModel):
    """Settings of headway-agent, read from /etc/headway/agent.toml."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    controller_address: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1, max_length=8)]
    """Address on which the controller accepts agents: host:port, or unix:///path on the controller's own machine. Where another
    controller stands by beside a backup slurmctld, a list of both addresses: the agent tries one after the other."""
    node_name: str = ""
    """Slurm's name of this node; empty = the host name up to its first dot."""
    munge: Literal["required", "automatic", "off"] = "automatic"
    """Use of MUNGE credentials on the stream. `automatic` omits them only on Unix sockets and loopback."""
    munge_socket: Path | None = None
    """Socket of munged; none = MUNGE's default."""
    controller_uid: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Uid of the controller's process: only this uid can read the agent's credentials."""
    ca_file: Path | None = None
    """PEM file of the CA that signed the controller's TLS certificate; none = no TLS."""

    job_socket: Path = Path("/run/headway-agent/job.sock")
    """Socket on which the jobs of this node report; every user may connect. Its folder belongs to the agent's user, mode 0755."""
    identity: Literal["automatic", "cgroup", "ancestry"] = "automatic"
    """Method to identify the job of a process: by its cgroup, or, if Slurm runs proctrack/linuxproc, by the slurmstepd above it.
    `automatic` uses the cgroup, and ancestry only if Slurm creates no cgroups on this node."""
    max_connections: Annotated[int, Field(ge=1, le=100_000)] = 4096
    """Maximum number of connected processes of jobs."""
    max_connections_per_user: Annotated[int, Field(ge=1, le=100_000)] = 256
    """Maximum number of connected processes of one user."""
    frames_per_s: Annotated[float, Field(gt=0, le=10_000)] = 50.0
    """Frames a second that one connection may send for long; a connection that sends more is closed."""
    frames_burst: Annotated[int, Field(ge=1, le=100_000)] = 100
    """Frames that one connection may send at once."""

    report_interval_s: Annotated[float, Field(ge=0.1, le=300)] = 5.0
    """Interval of this node's reports, until the controller sends its own setting."""
    steps_interval_s: Annotated[float, Field(ge=1.0, le=300)] = 1.0
    """Interval at which every process of a job reports its optimizer steps."""
    profile_steps: Annotated[int, Field(ge=0, le=1000)] = 20
    """Optimizer steps that are profiled when a job starts, until the controller sends its own setting; 0 = none. Short steps: up
    to eight times as many, so that the profile lasts a quarter of a second."""
    throughput_window_s: Annotated[float, Field(ge=5, le=3600)] = 60.0
    """Time window in which steps per second are measured."""

    gpus: Literal["required", "automatic", "off"] = "automatic"
    """Reading of GPUs through NVML. `automatic` reads them if there is a driver; with `required` a missing driver is an error."""
    gpu_deadline_s: Annotated[float, Field(gt=0, le=60)] = 2.0
    """A reading of the GPUs that takes longer is abandoned, and the process that takes it is killed."""
    gpm: Literal["automatic", "off"] = "off"
    """Reading of GPM (activity of multiprocessors and tensor cores, bandwidth of memory, PCIe and NVLink) at every report, for
    metrics_file. `automatic` reads it of GPUs that have it: Hopper and later, not in MIG mode."""
    nics: tuple[str, ...] = ()
    """Network interfaces whose traffic is counted; empty = all with hardware, or, if none has, all except loopback and bridges."""

    metrics_file: Path | None = None
    """File ending in .prom to which the node's measurements are written as Prometheus metrics at every report, for the textfile
    collector of node_exporter; none = no file. Its folder must exist; the unit may write to /run/headway-agent."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is logged."""
    log_format: Literal["console", "json"] = "console"
    """Format of the log lines on standard error."""

    @field_validator("controller_address", mode="before")
    @classmethod
    def _several(cls, given: object) -> object:
        return (given,) if isinstance(given, str) else given

    @field_validator("metrics_file")
    @classmethod
    def _is_collected(cls, path: Path | None) -> Path | None:
        if path is not None and (path.suffix != ".prom" or not path.is_absolute()):
            raise ValueError("must be an absolute path that ends in .prom: node_exporter reads no other files")
        return path


def load_settings(path: Path) -> AgentSettings:
    """Read and check the file. Raises ConfigurationError, which names the file, the key and the correction."""
    return read_settings(
        AgentSettings,
        path,
        ConfigurationError,
        none_there='write one with at least controller_address = "HOST:PORT"',
        example='controller_address = "headnode:9342"',
    )
