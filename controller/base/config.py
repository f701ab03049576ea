"""The controller's settings: one flat class over one TOML file.

Unknown keys are errors, and every error names the file, the key and the mend. docs/configuration.md is made from this file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from controller.base.errors import ConfigurationError
from controller.base.web_address import parse_web_address
from policies.serving.runtime.settings_file import read_settings, wrong_secret

DEFAULT_PATH = Path("/etc/headway/controller.toml")
POLICY_USER = "headway-policy"
"""User of headway-policy.service. It may be missing on a machine where policy servers are started by hand."""

WEB_USER = "headway-web"
"""User of headway-web.service. It may be missing on a machine that serves no page."""

PartitionName = Annotated[str, Field(pattern=r"^[^\s,=]+$")]
"""Name of one partition. A list of partitions has one string for each, not one string with commas."""
Mode = Literal["off", "advise", "automatic"]
"""Response to a reason to stop a running job: nothing, advice as text, or the stop."""


@dataclass(frozen=True, slots=True)
class _AtStart:
    """Marks a key that is read at the start only."""


AT_START = _AtStart()


class ControllerSettings(BaseModel):
    """Settings of headway-controller, read from /etc/headway/controller.toml."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    partitions: Annotated[tuple[PartitionName, ...], Field(min_length=1)]
    """Partitions whose batch jobs with GPUs Headway schedules. Everything else passes through untouched."""
    slurm_client: Annotated[Literal["auto", "command-line", "pyslurm", "embedded"], AT_START] = "auto"
    """Client for Slurm. `auto` takes pyslurm when it can be imported and matches the running Slurm, else the command line."""
    slurm_bin: Annotated[Path | None, AT_START] = None
    """Folder of squeue, scontrol and scancel; none = look them up on PATH."""
    slurm_conf: Annotated[Path | None, AT_START] = None
    """The slurm.conf to use; none = Slurm's own default."""
    embedded_cluster: Annotated[Path | None, AT_START] = None
    """TOML file that describes the cluster for slurm_client = "embedded"; none = 4 nodes of 8 GPUs, in every partition named."""
    cluster_file: Annotated[Path | None, AT_START] = None
    """TOML file of the cluster, as `headway cluster --toml` writes it, with `switches` and `nvlink` of the nodes added: from it
    policies that choose GPUs see how the GPUs of a node are connected. none = not known, then no GPUs are chosen."""
    slurm_timeout_s: Annotated[float, Field(gt=0, le=300), AT_START] = 10.0
    """A Slurm command that takes longer is ended, and counts as slurmctld not answering."""
    stand_by: Annotated[bool, AT_START] = False
    """True if slurm.conf has several SlurmctldHost and each of these machines has a controller with this setting: then this one
    works while the slurmctld of its own machine is active, and stands by otherwise, as does its watchdog. False: this is the only
    controller, whichever slurmctld is active."""

    runtime_dir: Annotated[Path, AT_START] = Path("/run/headway")
    """Folder of the lease (heartbeat), the wake pipes, the users' holds and the sockets. slurmctld's user must be able to enter
    it."""
    state_dir: Annotated[Path, AT_START] = Path("/var/lib/headway")
    """Folder of the journal and of the measurements. Mode 0700, owned by the controller's user."""

    policy_address: Annotated[str, AT_START] = "unix:///run/headway-policy/policy.sock"
    """Policy server: unix:///path, or host:port on loopback."""
    policy_users: Annotated[tuple[str, ...], AT_START] = (POLICY_USER,)
    """Users, by name or number, whose policy servers may decide, beside root and the controller's own user. The process at
    policy_address, or at the address of `headway policy use`, must belong to one of them; any other is not called."""
    policy_deadline_s: Annotated[float, Field(gt=0, le=60)] = 0.5
    """Time limit of the policy server for one decision; when it is reached, the fallback policy makes this decision."""
    fallback_policy: Annotated[str, AT_START] = "backfill:order=slurm"
    """Built-in policy that decides, in process, when the policy server does not: NAME, or NAME:key=value,key=value."""

    poll_interval_s: Annotated[float, Field(ge=1.0, le=3600)] = 5.0
    """Longest time between two readings of Slurm when nothing wakes the controller."""
    min_poll_interval_s: Annotated[float, Field(ge=1.0, le=60)] = 1.0
    """Shortest time between two readings, however often it is woken."""
    start_grace_s: Annotated[float, Field(gt=0, le=3600)] = 10.0
    """A released job that has not started by then is held again and placed anew, with Slurm's reason."""

    heartbeat_interval_s: Annotated[float, Field(gt=0, le=60)] = 1.0
    """Interval at which the lease is renewed."""
    stale_after_s: Annotated[float, Field(ge=2, le=3600)] = 30.0
    """A lease older than this is stale: new jobs are not held, and the watchdog releases the held ones."""

    history_runs: Annotated[int, Field(ge=1, le=1000)] = 10
    """Number of past runs of the same user and job name from which the run time is estimated."""
    history_min_runs: Annotated[int, Field(ge=1, le=1000)] = 3
    """With fewer past runs than this, the time limit is the estimate."""
    start_estimates_every_s: Annotated[float, Field(ge=0, le=3600)] = 60.0
    """Interval at which a process of its own estimates when waiting jobs will start; 0 = no estimates. A job that comes in between
    has its first estimate earlier, if that costs less than a twentieth of a processor."""
    keep_decisions: Annotated[int, Field(ge=10, le=1_000_000)] = 2000
    """Decisions kept in the journal; older ones are dropped."""
    keep_days: Annotated[float, Field(gt=0, le=3650)] = 30.0
    """Days for which ended jobs, steps and outcomes are kept in the journal."""

    agents_address: Annotated[str, AT_START] = ""
    """Address on which node agents are served: host:port (0.0.0.0:9342 is every interface), or unix:///path; empty = not at all.
    Their measurements are kept in state_dir."""
    agents_munge: Annotated[Literal["required", "automatic", "off"], AT_START] = "automatic"
    """MUNGE credentials of agents. `automatic` requires them except on a Unix socket, which only root and the controller's user
    may open, and on loopback where MUNGE is not installed. The agents' own `munge` has to agree."""
    agents_addresses: Annotated[Literal["required", "automatic", "off"], AT_START] = "automatic"
    """Check that an agent calls from its node's address, as Slurm has it (NodeAddr). `automatic` refuses callers from the address
    of another node; `required` also those from an address of no node, so each agent has to call from its NodeAddr; `off` is for
    sites where nodes call through one another's addresses."""
    agents_most: Annotated[int, Field(ge=1, le=10_000), AT_START] = 4096
    """Agents that may be connected at the same time; further ones are refused until there is room. Each takes an open file."""
    munge_socket: Annotated[Path | None, AT_START] = None
    """munged's socket; none = MUNGE's own default."""
    agents_certificate: Annotated[Path | None, AT_START] = None
    """PEM file of the certificate with which agents are served over TLS; none = without TLS."""
    agents_private_key: Annotated[Path | None, AT_START] = None
    """PEM file of the certificate's private key."""
    agents_report_interval_s: Annotated[float, Field(ge=0.5, le=60), AT_START] = 5.0
    """Interval at which agents report; it takes precedence over their own settings."""
    agents_profile_steps: Annotated[int, Field(ge=0, le=1000), AT_START] = 20
    """Optimizer steps of a job that are profiled when it starts; 0 = none. Where steps are short, up to eight times as
    many, so that the profile lasts a quarter of a second. It takes precedence over the agents' own settings."""
    agents_profiles_per_hour: Annotated[int, Field(ge=0, le=60)] = 2
    """Maximum number of profiles of one job within an hour that the controller requests by itself, because other jobs have come to
    its nodes and links, or have left; 0 = none. Each is as long as the one at the job's start (`agents_profile_steps`)."""
    agents_window_s: Annotated[float, Field(ge=5, le=600, validate_default=True), AT_START] = 30.0
    """Time over which a job's throughput is counted, at least five reports long. Contention sensitivity is the ratio of two
    throughputs."""

    preemption: Mode = "off"
    """Stopping of running jobs that can continue later, to place them again: by the threshold below, and by policies that preempt.
    `advise` shows in `headway status`, `why` and `events` what the threshold would do, and stops no job. Operators may stop
    jobs at any time."""
    preemption_partitions: dict[PartitionName, Mode] = Field(default_factory=dict)
    """The same for jobs in certain partitions, where it takes precedence over `preemption`: `{ gpu = "automatic" }`."""
    preemption_within_s: Annotated[float, Field(ge=1, le=3570)] = 60.0
    """Time that a job has to save; when it is over, the job continues to train on its nodes."""
    preemption_still_s: Annotated[float, Field(ge=2, le=3600, validate_default=True)] = 120.0
    """Longest pause of the ranks, from the beginning of the save until the job is stopped; after it they continue to train. It has
    to be more than preemption_within_s."""
    preemption_min_run_s: Annotated[float, Field(ge=0, le=86400)] = 300.0
    """Shortest run after which a job may be stopped. The threshold also stops no job that is expected to end within this time."""
    preemption_cooldown_s: Annotated[float, Field(ge=0, le=86400)] = 600.0
    """Time after a stop during which a job is not stopped again; it doubles each time that the job does not save when it is to be
    stopped."""
    preemption_moves_per_hour: Annotated[int, Field(ge=0, le=1000)] = 2
    """Maximum number of stops of one job within an hour. Attempts that were called off count too."""
    preemption_budget_per_hour: Annotated[int, Field(ge=0, le=100_000)] = 20
    """Maximum number of stops by threshold and policies together within an hour, in all partitions. Attempts count too. Jobs that
    make room for one job together are stopped only if the budget suffices for all of them."""
    user_changes_per_hour: Annotated[int, Field(ge=0, le=1000)] = 6
    """Maximum number of changes within an hour that a user may request for jobs of their own: `headway preempt`, `move`, `resize`
    and `profile JOBID`. Refused requests do not count. 0 = users change nothing. Root and the controller's user have no such
    limit."""
    contention_threshold: Annotated[float, Field(gt=1, le=100)] = 1.5
    """Contention sensitivity from which on a job is to be moved: at 1.5, its training steps take 50 % longer than without other
    jobs on its nodes and links. Values with a confidence below 50 % do not count."""
    contention_clear: Annotated[float, Field(gt=1, le=100, validate_default=True)] = 1.2
    """Contention sensitivity below which a job is no longer to be moved. It has to be less than contention_threshold, by more than
    the values of one job vary from window to window."""
    contention_sustained_s: Annotated[float, Field(ge=0, le=86400)] = 120.0
    """Time for which a job's contention sensitivity has to stay above the threshold before one of the jobs that slow each other
    down is moved. It is counted in windows of agents_window_s."""

    metrics_address: Annotated[str, AT_START] = "127.0.0.1:19341"
    """Address on which Prometheus metrics are served, host:port; empty = not at all. Every user who can reach the address can
    read them, so it has to be loopback, or an IP address written out (0.0.0.0:19341 is every interface). The default is outside
    Prometheus's list of exporters (9100 to 9999 are all given away; 9341 is the Slurm exporter's)."""
    metrics_jobs: Annotated[int, Field(ge=0, le=20_000)] = 500
    """Maximum number of waiting jobs, those that have waited longest, with metrics of their own (wait, reason, estimated start),
    and of running ones, the most slowed down, with their slowdown: five series for each of this number at most, 2,500 by default.
    0 = none. Where jobs are private (PrivateData=jobs, or admin_group), there are none in any case."""
    admin_group: Annotated[str, AT_START] = ""
    """Unix group that may call status.sock (`headway status`, `queue`, `why`, `events`). Empty = every user of this machine, but
    where slurm.conf keeps jobs private (PrivateData), each sees jobs of their own. Changing the policy stays with root and the
    controller's user, on admin.sock."""
    web_user: Annotated[str, AT_START] = WEB_USER
    """User of headway-web.service, by name or number: the only one whose calls on status.sock may be for another user. That user
    has signed in on the page, and sees there what they may see with `headway`. Empty = none."""
    audit_file: Annotated[Path | None, AT_START] = None
    """File of the audit log, one JSON object a line; none = audit.jsonl in state_dir. Its folder must exist, and the controller's
    user must be able to write there. At 4 MiB it is renamed to NAME.1, and the newest five files are kept."""
    notify_events: tuple[Literal["started", "preempted", "resumed", "moved", "ended"], ...] = (
        "started", "preempted", "resumed", "moved", "ended",
    )  # fmt: skip
    """Events of jobs that are notified, to all receivers."""
    notify_webhook: Annotated[str, AT_START] = ""
    """Address (https://HOST/PATH) to which each event is sent as JSON by POST; empty = none."""
    notify_webhook_token: Annotated[Path | None, AT_START] = None
    """File with a token for notify_webhook, which is sent as `Authorization: Bearer`. Only its owner, root or the controller's
    user, may be able to read it."""
    notify_users: Annotated[dict[str, str], AT_START] = {}
    """User to the address to which the events of this user's own jobs are sent as well."""
    notify_command: Annotated[Path | None, AT_START] = None
    """Program that is run for each event, as the controller's user and without arguments; the JSON is on its standard input. It
    must belong to root or that user, and only its owner may have the right to write to it."""
    notify_timeout_s: Annotated[float, Field(gt=0, le=60), AT_START] = 10.0
    """Time limit of one delivery. A receiver that takes longer counts as failed, and its program is killed."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is logged."""
    log_format: Literal["console", "json"] = "console"
    """Format of the log lines on standard error."""

    @field_validator("notify_webhook", "notify_users")
    @classmethod
    def _are_addresses(cls, found: str | dict[str, str]) -> str | dict[str, str]:
        for name, address in found.items() if isinstance(found, dict) else [("", found)] if found else []:
            try:
                parse_web_address(address)
            except ValueError as error:
                # Services for chats put a secret into the path.
                raise wrong_secret(f"{name}: {error}" if name else str(error)) from None
        return found

    @field_validator("agents_window_s")
    @classmethod
    def _covers_five_reports(cls, window_s: float, others: ValidationInfo) -> float:
        least_s = 5 * others.data.get("agents_report_interval_s", 0.0)
        if window_s < least_s:
            raise ValueError(f"must be {least_s:g} or more, five times agents_report_interval_s")
        return window_s

    @field_validator("preemption_partitions")
    @classmethod
    def _managed(cls, modes: dict[str, Mode], others: ValidationInfo) -> dict[str, Mode]:
        known = others.data.get("partitions", tuple(modes))
        if unknown := sorted(set(modes) - set(known)):
            raise ValueError(
                f"{', '.join(unknown)} {'is' if len(unknown) == 1 else 'are'} not among partitions ({', '.join(known)}); "
                "add it there if Headway is to schedule it, or remove it here"
            )
        return modes

    @field_validator("preemption_still_s")
    @classmethod
    def _outlasts_saving(cls, still_s: float, others: ValidationInfo) -> float:
        within_s = others.data.get("preemption_within_s", 0.0)
        if still_s <= within_s:
            raise ValueError(
                f"must be more than preemption_within_s ({within_s:g}): ranks that saved first wait for the last, and then "
                "for Slurm to stop them"
            )
        return still_s

    @field_validator("contention_clear")
    @classmethod
    def _below_threshold(cls, clear: float, others: ValidationInfo) -> float:
        threshold = others.data.get("contention_threshold", clear + 1)
        if clear >= threshold:
            raise ValueError(
                f"must be less than contention_threshold ({threshold:g}): otherwise a job near both values would be marked "
                "for a move in one window and cleared in the next; lower it, or raise contention_threshold"
            )
        return clear

    @property
    def lease_path(self) -> Path:
        """The heartbeat file that job_submit.lua and the watchdog read."""
        return self.runtime_dir / "lease"

    @property
    def wake_path(self) -> Path:
        """The named pipe through which job_submit.lua and the hooks wake the controller."""
        return self.runtime_dir / "wake"

    @property
    def holds_path(self) -> Path:
        """The folder in which job_submit.lua writes down the holds that it accepts from users."""
        return self.runtime_dir / "holds"

    @property
    def journal_path(self) -> Path:
        """The journal's SQLite file."""
        return self.state_dir / "journal.sqlite"

    @property
    def events_path(self) -> Path:
        """The file of the newest events."""
        return self.state_dir / "events.jsonl"

    @property
    def audit_path(self) -> Path:
        """The file of the audit log."""
        return self.state_dir / "audit.jsonl" if self.audit_file is None else self.audit_file

    @property
    def profiles_path(self) -> Path:
        """The SQLite file with the measurements of jobs."""
        return self.state_dir / "profiles.sqlite"


RESTART_KEYS = frozenset(name for name, field in ControllerSettings.model_fields.items() if AT_START in field.metadata)
"""Keys that a reload cannot change."""


def load_settings(path: Path) -> ControllerSettings:
    """Read and check the file. Raises ConfigurationError that names file, key and mend."""
    return read_settings(
        ControllerSettings,
        path,
        ConfigurationError,
        none_there="write one (docs/configuration.md has every key, `headway-setup slurm` an example)",
        example='partitions = ["gpu"]',
    )
