"""The web page of the demonstration's cluster: served on loopback, and open until its reader has seen enough."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import sys
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from controller.web.tokens import new_token
from slurm.demo.errors import DemoError, Interrupted
from slurm.testbed.installation import Installation
from slurm.testbed.programs import InstallationError, program, write_toml

USER = "nobody"
"""User of the page, and the user that signs in: the jobs of the demonstration are this user's."""
_NAME = "page"
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")

Say = Callable[[str], None]


def problem() -> str:
    """Return why the page cannot be served here; empty when it can."""
    if os.geteuid() != 0:
        return "the page needs root: the controller answers it only where it runs as a user of its own"
    if shutil.which("setpriv") is None:
        return "the page needs the program setpriv (package util-linux)"
    return ""


class Page:
    """headway-web for a running controller. Invariant: it has ended when the context ends.

    It has the rights of `USER`, and may read any file: a checkout in root's folder is not open to other users.
    """

    def __init__(self, installation: Installation) -> None:
        """`installation`: its controller was configured with `web_user = USER`."""
        self._installation = installation
        self._port = _free_port()
        self.token, self._line = new_token(USER)

    @property
    def address(self) -> str:
        """Address for a browser of this machine."""
        return f"http://127.0.0.1:{self._port}/"

    def __enter__(self) -> Self:
        installation = self._installation
        tokens, settings = installation.folder / "web-tokens", installation.folder / "web.toml"
        tokens.touch(mode=0o600)
        tokens.write_text(f"{self._line}\n")
        values = {
            "listen": f"127.0.0.1:{self._port}", "token_file": str(tokens),
            "status_socket": str(installation.runtime_dir / "status.sock"),
        }  # fmt: skip
        write_toml(settings, values)
        installation.start(_NAME, [*_as_user(), *program("headway-web"), "run", "--config", str(settings)])
        try:
            installation.wait(self._answers, _NAME)
        except InstallationError as error:
            self._stop()
            raise DemoError(str(error)) from error
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self._port), timeout=1.0):
            return True
        return False

    def _stop(self) -> None:
        self._installation.stop(_NAME)


def offer(page: Page, say: Say, wait: Callable[[], object], browse: Callable[[str], object] = webbrowser.open) -> None:
    """Say where the page is, open it where there is a display, and `wait` until its reader has seen enough.

    A signal ends the wait, and nothing else: what follows is the usual clean-up.
    """
    say(f"The web page of this cluster is at {page.address}. Sign in with the token {page.token}")
    if any(os.environ.get(name) for name in _DISPLAYS):
        browse(page.address)
    say("Press Enter to close it and to remove everything.")
    with suppress(Interrupted):
        wait()


def read_line() -> None:
    """Wait for a line on standard input, or for its end."""
    sys.stdin.readline()


def _as_user() -> list[str]:
    account = pwd.getpwnam(USER)
    rights = "-all,+dac_read_search"
    return [
        "setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups",
        f"--inh-caps={rights}", f"--ambient-caps={rights}", f"--bounding-set={rights}", "--no-new-privs", "--pdeathsig=KILL", "--",
    ]  # fmt: skip


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
