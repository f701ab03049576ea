"""Which client talks to Slurm, as the settings say."""

from __future__ import annotations

import os

from controller.config import ControllerSettings
from controller.slurm.client import SlurmClient
from controller.slurm.command_line import CommandLineClient
from controller.slurm.parse import Clockface
from controller.slurm.run import ProcessRunner

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


async def open_client(settings: ControllerSettings) -> SlurmClient:
    """The client that the settings name. Raises ConfigurationError, SlurmError."""
    if settings.slurm_client == "embedded":
        from controller.slurm.embedded import open_embedded

        slurm = open_embedded(settings)
        slurm.start()
        return slurm.client
    return command_line_client(settings)


def command_line_client(settings: ControllerSettings) -> CommandLineClient:
    """The command-line client over real processes."""
    clock = Clockface.secret()
    return CommandLineClient(
        ProcessRunner(
            bin_dir=settings.slurm_bin,
            environment=slurm_environment(settings, clock),
            timeout_s=settings.slurm_timeout_s,
        ),
        clock,
    )


def slurm_environment(settings: ControllerSettings, clock: Clockface) -> dict[str, str]:
    """All that Slurm's programs see of an environment.

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
