"""Settings and tokens: each mistake is named with its mend, and no setting lets users name others."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from controller.base.errors import ConfigurationError
from controller.web.cli import app
from controller.web.run import listen
from controller.web.settings import ListenAddress, load_settings
from controller.web.tokens import new_token, read_tokens, user_of

ROOT = Path(__file__).parents[4]


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "web.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "nobody could sign in: set proxy_addresses"),
        ('proxy_addresses = ["127.0.0.1"]', "loopback, where every user of the machine could name any other"),
        ('proxy_addresses = ["::1/128"]', "loopback"),
        ('proxy_addresses = ["proxy.example.org"]', "give an address, a network"),
        ('proxy_addresses = ["192.0.2.7/8"]', "has host bits set"),
        ('proxy_addresses = ["unix"]', 'give listen = "unix:///path"'),
        ('token_file = "/x"\nlisten = "0.0.0.0:80"', "is beyond this machine; set proxy_addresses"),
        ('token_file = "/x"\nlisten = "example.org:80"', "is no address; give 127.0.0.1:19342"),
        ('token_file = "/x"\nlisten = "127.0.0.1:99999"', "is no address"),
        ('token_file = "/x"\nbase_path = "/a/../b?"', "base_path"),
        ('token_file = "/x"\nuser_header = "a b"', "user_header"),
        ('token_files = "/x"', "no such key"),
        ("token_file = ", "not valid TOML"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(written(tmp_path, text))
    assert problem in str(caught.value)
    assert "web.toml" in str(caught.value)


def test_the_settings_of_the_documents_are_in_order(tmp_path: Path) -> None:
    text = (ROOT / "docs/web.md").read_text()
    examples = [part.split("```")[0] for part in text.split("```toml\n")[1:]]
    assert len(examples) >= 2
    for example in examples:
        load_settings(written(tmp_path, example))
    keys = {line.split("`")[1] for line in text.splitlines() if line.startswith("| `")}
    from controller.web.settings import WebSettings

    assert set(WebSettings.model_fields) <= keys
    assert (
        tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["headway-web"]
        == "controller.web.cli:main"
    )


def test_tokens_are_stored_as_digests(tmp_path: Path) -> None:
    token, line = new_token("ann")
    path = tmp_path / "tokens"
    path.write_text(f"# page\n{line}\n\n{new_token('bob@x')[1]}\n")
    tokens = read_tokens(path)

    assert token not in path.read_text()
    assert user_of(tokens, token) == "ann"
    assert [user_of(tokens, wrong) for wrong in ("", token[:-1], "x" * 300, line.split(":")[1], "\ud800")] == [None] * 5
    for bad in ("ann", "ann sha256:12", "a b sha256:" + "0" * 64, "<x> sha256:" + "0" * 64):
        path.write_text(f"\n{bad}\n")
        with pytest.raises(ConfigurationError, match="line 2 is not USER sha256:DIGEST"):
            read_tokens(path)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_tokens(tmp_path / "none")
    with pytest.raises(ConfigurationError, match="is not the name of a user"):
        new_token("a b")


def test_the_command_makes_tokens_and_checks_settings(tmp_path: Path) -> None:
    def say(*argv: str) -> Any:
        return CliRunner().invoke(app, list(argv))

    made = say("token", "ann")
    tokens = tmp_path / "tokens"
    tokens.write_text(made.output.splitlines()[1].removeprefix("line for token_file: ") + "\n")
    assert user_of(read_tokens(tokens), made.output.splitlines()[0].rpartition(" ")[2]) == "ann"
    good = written(tmp_path, f'token_file = "{tokens}"')
    assert say("check-config", "--config", str(good)).output.endswith("in order\n")
    tokens.unlink()
    refused = say("check-config", "--config", str(good))
    assert (refused.exit_code, "headway-web: token_file:" in refused.output) == (1, True)


def test_a_socket_is_for_its_group_and_an_old_one_is_replaced() -> None:
    with tempfile.TemporaryDirectory(prefix="hw-") as folder:
        path = Path(folder) / "web.sock"
        for _ in range(2):
            listen(ListenAddress(path=path)).close()
            assert stat.S_IMODE(path.stat().st_mode) == 0o660
        path.unlink()
        path.write_text("mine")
        with pytest.raises(ConfigurationError, match="not a socket"):
            listen(ListenAddress(path=path))
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(ConfigurationError, match="cannot listen there"),
    ):
        listen(ListenAddress(host="127.0.0.1", port=taken.getsockname()[1]))


async def test_the_program_tells_systemd_serves_and_ends(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="hw-") as folder:
        # given settings with a Unix socket, and a service manager
        notify, page = Path(folder) / "notify", Path(folder) / "web.sock"
        manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        manager.bind(str(notify))
        manager.settimeout(60)
        path = written(
            tmp_path, f'listen = "unix://{page}"\nproxy_addresses = ["unix"]\nstatus_socket = "{folder}/status.sock"\n'
        )
        program = [sys.executable, "-c", "from controller.web.cli import main; main()", "run", "--config", str(path)]
        process = subprocess.Popen(program, env={**os.environ, "NOTIFY_SOCKET": str(notify)}, stderr=subprocess.PIPE)
        try:
            # when it has started
            while b"READY=1" not in await asyncio.to_thread(manager.recv, 4096):
                pass
            # then it answers the proxy, and says that no controller does
            reader, writer = await asyncio.open_unix_connection(str(page))
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nX-Remote-User: ann\r\nConnection: close\r\n\r\n")
            answer = await asyncio.wait_for(reader.read(), 30)
            writer.close()
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b"No controller answers at" in answer
            # and ends when it is told to
            process.send_signal(signal.SIGTERM)
            began_s = time.monotonic()
            assert await asyncio.to_thread(process.wait, 60) == 0
            assert time.monotonic() - began_s < 25
            assert not page.exists()
        finally:
            process.kill()
            process.wait()
            assert process.stderr is not None
            process.stderr.close()
            manager.close()
