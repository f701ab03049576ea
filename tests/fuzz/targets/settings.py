"""Settings in TOML, which administrators write."""

from __future__ import annotations

from pathlib import Path

from controller.base.config import load_settings
from controller.base.errors import ConfigurationError
from controller.cli.client import CallError, _runtime_dir
from controller.daemon.watchdog.settings import watchdog_settings
from controller.slurm.embedded.loading import load_cluster
from controller.web.settings import load_settings as load_web_settings
from controller.web.tokens import new_token, read_tokens, user_of
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


_WEB = (
    b'listen = "127.0.0.1:19342"\nproxy_addresses = ["127.0.0.1", "192.0.2.0/28"]\nuser_header = "X-Remote-User"\n'
    b'token_file = "/etc/headway/web-tokens"\n',
    b'listen = "unix:///run/headway-web/web.sock"\nproxy_addresses = ["unix"]\n',
    b'listen = "[::1]:19342"\ntoken_file = "/etc/headway/web-tokens"\n',
)
_TOKENS = "\n".join(
    ["# who may see the page", *(new_token(user)[1] for user in ("ann", "bob@site.org", "cat"))]
).encode()


def _settings_of_web(path: Path) -> object:
    """Read web.toml, and the addresses in it."""
    settings = load_web_settings(path)
    return settings.address, settings.networks


def _sign_in(data: bytes, folder: Path) -> object:
    """Read the file of tokens, and sign in with the file's text as a token."""
    return user_of(read_tokens(folder / "web-tokens"), data.decode("latin-1")[:300])


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
        "web-settings",
        "web.toml",
        "text",
        lambda: list(_WEB),
        lambda _data, folder: _settings_of_web(folder / "web.toml"),
        (ConfigurationError,),
        file="web.toml",
        cost=6,
    ),
    Target(
        "web-tokens",
        "the file of tokens of the web page",
        "text",
        lambda: [_TOKENS],
        _sign_in,
        (ConfigurationError,),
        file="web-tokens",
        cost=4,
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
