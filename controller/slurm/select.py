"""Chooses the client for Slurm by the settings, for the controller and all commands."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

import structlog

from controller.base.config import ControllerSettings
from controller.base.errors import ConfigurationError, SlurmUnavailableError
from controller.slurm.accounting import Accounting
from controller.slurm.client import SlurmClient
from controller.slurm.pyslurm.client import PySlurmClient
from controller.slurm.pyslurm.process import WorkerProcess
from controller.slurm.scontrol.client import CommandLineClient
from controller.slurm.scontrol.clockface import Clockface
from controller.slurm.scontrol.run import ProcessRunner, Sieve
from controller.slurm.scontrol.sieve import MarkedJobs

log = structlog.get_logger(__name__)

_MOST_IN_DOUBT_ONCE = 5000
"""Jobs in doubt that a client reads by id which makes a single reading; about five seconds of slurmctld's time."""
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


async def open_client(settings: ControllerSettings, before_change: Callable[[], None] = lambda: None) -> SlurmClient:
    """Return the client that the settings name. Raises ConfigurationError, SlurmError.

    `before_change` is called before every command to a real Slurm that changes a job, and may raise SlurmUnavailableError.

    `auto` takes pyslurm where its answers are those of the command line: it is installed, made for the Slurm that runs, and
    that Slurm counts GPUs (otherwise pyslurm does not see the GPUs of --gpus). In all other cases it takes the command line.
    """
    if settings.slurm_client == "embedded":
        from controller.slurm.embedded import open_embedded

        slurm = open_embedded(settings)
        slurm.start()
        return slurm.client
    client = await _real_client(settings)
    client.before_change = before_change
    return client


async def _real_client(settings: ControllerSettings) -> CommandLineClient | PySlurmClient:
    command_line = command_line_client(settings)
    if settings.slurm_client == "command-line":
        return command_line
    reason = await _unfit(settings, command_line)
    if reason is None:
        worker = WorkerProcess(slurm_environment(settings, Clockface.secret()), settings.slurm_timeout_s)
        return PySlurmClient(worker, command_line)
    if settings.slurm_client == "pyslurm":
        raise ConfigurationError(f'slurm_client = "pyslurm": {reason}; use slurm_client = "auto" or "command-line"')
    log.info("pyslurm_not_used", reason=reason)
    return command_line


async def _unfit(settings: ControllerSettings, command_line: CommandLineClient) -> str | None:
    """Return why pyslurm cannot be used here; None when it can. It is not imported: its library could not be unloaded."""
    try:
        made_for = version("pyslurm")
    except PackageNotFoundError:
        return "pyslurm is not installed"
    try:
        facts = await command_line.facts()
    except SlurmUnavailableError:
        if settings.slurm_client == "pyslurm":
            raise
        return "slurmctld does not answer yet, so its version is not known"
    running = ".".join(f"{part:02d}" for part in facts.version[:2])
    if [int(part) for part in made_for.split(".")[:2]] != list(facts.version[:2]):
        return f"pyslurm {made_for} is not made for Slurm {running}, which runs"
    if "gres/gpu" not in facts.settings.get("AccountingStorageTRES", ""):
        return "AccountingStorageTRES in slurm.conf does not have gres/gpu"
    return None


def command_line_client(settings: ControllerSettings, *, only_marked: bool = False) -> CommandLineClient:
    """Return the command-line client over real processes.

    `only_marked`: readings of all jobs leave out those without a mark of ours, so that a queue of any size can be read.
    """
    clock = Clockface.secret()
    environment = slurm_environment(settings, clock)

    def runner(sieve: Callable[[], Sieve] | None = None) -> ProcessRunner:
        return ProcessRunner(
            bin_dir=settings.slurm_bin, environment=environment, timeout_s=settings.slurm_timeout_s, sieve=sieve
        )

    bulk = runner(lambda: MarkedJobs(clock)) if only_marked else None
    if bulk is None:
        return CommandLineClient(runner(), clock)
    return CommandLineClient(runner(), clock, bulk=bulk, most_in_doubt=_MOST_IN_DOUBT_ONCE)


def open_accounting(settings: ControllerSettings) -> Accounting | None:
    """Return the reader of Slurm's accounting; None for the embedded Slurm, which has none."""
    if settings.slurm_client == "embedded":
        return None
    environment = slurm_environment(settings, Clockface.secret()) | {"SLURM_TIME_FORMAT": "%s"}
    runner = ProcessRunner(
        bin_dir=settings.slurm_bin,
        environment=environment,
        timeout_s=settings.slurm_timeout_s,
        max_output_bytes=1 << 24,
    )
    return Accounting(runner)


def slurm_environment(settings: ControllerSettings, clock: Clockface) -> dict[str, str]:
    """Return the whole environment of Slurm's programs.

    Of the variables that change what they do, only SLURM_CONF is taken over: the settings' own first, else the caller's.
    """
    environment = {
        "PATH": os.environ.get("PATH", _SYSTEM_PATH),
        "LC_ALL": "C",
        "TERM": "dumb",
        "SLURM_TIME_FORMAT": clock.format,
        "SLURM_BITSTR_LEN": "0",
    }
    conf = str(settings.slurm_conf) if settings.slurm_conf else os.environ.get("SLURM_CONF")
    if conf:
        environment["SLURM_CONF"] = conf
    for name in ("LD_LIBRARY_PATH", "TZ"):
        if name in os.environ:
            environment[name] = os.environ[name]
    return environment
