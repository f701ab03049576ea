"""Settings in TOML, which administrators write."""

from __future__ import annotations

from pathlib import Path

from controller.base.config import load_settings
from controller.base.errors import ConfigurationError
from controller.cli.client import CallError, _runtime_dir
from controller.daemon.watchdog.settings import watchdog_settings
from controller.slurm.embedded.loading import load_cluster
from nodeagent import config as agent_config
from nodeagent.errors import ConfigurationError as AgentConfigurationError
from tests.fuzz.target import Target
from tests.unit.controller.slurm.embedded.test_description import FULL

ROOT = Path(__file__).resolve().parents[3]
_EXAMPLES = ROOT / "slurm" / "plugin" / "example"
_MORE = (
    b'partitions = ["dl", "long"]\npolicy_users = ["headway-policy", "0"]\nstale_after_s = 30.0\nkeep_days = 7\n'
    b'runtime_dir = "/run/headway"\nslurm_bin = "/usr/bin"\npolicy_address = "127.0.0.1:5000"\n[[x]]\ny.z = 1979-05-27T07:32:00Z\n'
)


def _corpus(name: str) -> list[bytes]:
    return [(_EXAMPLES / name).read_bytes(), _MORE]


SETTINGS = (
    Target(
        "controller-settings",
        "controller.toml",
        "text",
        lambda: _corpus("controller.toml"),
        lambda _data, folder: load_settings(folder / "controller.toml"),
        (ConfigurationError,),
        file="controller.toml",
        cost=6,
    ),
    Target(
        "watchdog-settings",
        "controller.toml as the watchdog reads it, which never fails",
        "text",
        lambda: _corpus("controller.toml"),
        lambda _data, folder: watchdog_settings(folder / "controller.toml"),
        file="controller.toml",
        cost=10,
    ),
    Target(
        "command-settings",
        "controller.toml as the command line reads it",
        "text",
        lambda: _corpus("controller.toml"),
        lambda _data, folder: _runtime_dir(folder / "controller.toml"),
        (CallError,),
        file="controller.toml",
        cost=5,
    ),
    Target(
        "agent-settings",
        "agent.toml",
        "text",
        lambda: _corpus("agent.toml"),
        lambda _data, folder: agent_config.load_settings(folder / "agent.toml"),
        (AgentConfigurationError,),
        file="agent.toml",
        cost=5,
    ),
    Target(
        "embedded-cluster",
        "the description of an embedded cluster",
        "text",
        lambda: [FULL.encode()],
        lambda _data, folder: load_cluster(folder / "cluster.toml"),
        (ConfigurationError,),
        file="cluster.toml",
        cost=6,
    ),
)
