"""A cluster's folder of configuration, in which `headway-setup slurm` runs."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner, Result

from controller.slurm.configuration.conf import read_slurm_conf
from slurm.setup.cli import app

BARE = "ClusterName=lab\nSchedulerParameters=bf_interval=30\nPartitionName=gpu Nodes=ALL\n"


class Site:
    """A cluster's configuration folder."""

    def __init__(self, folder: Path, name: str = "slurm.conf", text: str = BARE) -> None:
        self.folder = folder
        self.conf = folder / name
        self.conf.write_text(text)

    def setup(self, *options: str) -> Result:
        return CliRunner().invoke(app, ["slurm", "--slurm-conf", str(self.conf), *options])

    def undo(self, *options: str) -> Result:
        """Run `--undo` where no slurmctld runs."""
        return self.setup("--undo", "--slurmctld-gone", *options)

    def value(self, key: str) -> str:
        return read_slurm_conf(self.conf).value(key)

    def files(self) -> dict[str, str]:
        return {
            str(path.relative_to(self.folder)): path.read_text() for path in self.folder.rglob("*") if path.is_file()
        }
