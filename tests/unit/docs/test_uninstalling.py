"""The commands of operations.md that remove Headway leave nothing of it, run on a folder in place of a machine's root."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.releases.documents import blocks

ROOT = Path(__file__).parents[3]
UNITS = sorted((ROOT / "systemd").glob("headway-*.*"))
SYSTEMCTL = """#!/bin/sh
# Like the real one, it stops no unit whose file is gone.
echo "systemctl $*" >>{log}
[ "$1" = disable ] || exit 0
shift
for unit in "$@"; do
    case $unit in --*) continue ;; *.*) ;; *) unit=$unit.service ;; esac
    [ -e {root}/etc/systemd/system/$unit ] || {{ echo "Unit file $unit does not exist." >&2; exit 1; }}
    echo "stopped $unit" >>{log}
done
"""


class Machine:
    """A folder with everything that an installation by the README, its services and `systemctl edit` have made."""

    def __init__(self, folder: Path, units: list[Path]) -> None:
        self.root, self.programs, self._log = folder / "root", folder / "bin", folder / "log"
        system = self.root / "etc/systemd/system"
        folders = [system, self.root / "opt/headway/bin", self.root / "usr/local/bin", self.root / "etc/headway"]
        for unit in units:
            folders.append(system / f"{unit.name}.d")
            folders += [
                self.root / "var/lib" / name for name in re.findall(r"^StateDirectory=(.+)$", unit.read_text(), re.M)
            ]
        for each in folders:
            each.mkdir(parents=True, exist_ok=True)
            if each != system:
                (each / "headway").touch()
        if units == UNITS:
            (self.root / "etc/profile.d").mkdir()
            (self.root / "etc/profile.d/headway.sh").touch()
        for unit in units:
            (system / unit.name).touch()
        self.programs.mkdir()
        self._program("systemctl", SYSTEMCTL.format(log=self._log, root=self.root))
        for name in ("userdel", "groupdel", "id"):
            self._program(name, f'#!/bin/sh\necho "{name} $*" >>{self._log}\n')

    def _program(self, name: str, text: str) -> None:
        (self.programs / name).write_text(text)
        (self.programs / name).chmod(0o755)

    def follow(self, commands: list[str]) -> list[str]:
        """Run the commands, whose absolute paths are below the folder; return what the programs were called with."""
        text = re.sub(r"(^|\s)/", rf"\1{self.root}/", "\n".join(commands))
        environment = {"PATH": f"{self.programs}:/usr/bin:/bin"}
        done = subprocess.run(
            ["bash", "-ec", text], env=environment, timeout=60, check=False, capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return self._log.read_text().splitlines()

    def left(self) -> list[str]:
        """Paths that are left of Headway."""
        return [str(path.relative_to(self.root)) for path in self.root.rglob("*headway*")]


@pytest.fixture
def uninstalling() -> list[list[str]]:
    return blocks((ROOT / "docs/operations.md").read_text(), "Uninstalling")


def test_the_commands_for_the_machine_of_the_controller_leave_nothing(
    tmp_path: Path, uninstalling: list[list[str]]
) -> None:
    machine = Machine(tmp_path, UNITS)

    calls = machine.follow(uninstalling[2])

    assert machine.left() == []
    stopped = {call.split()[1] for call in calls if call.startswith("stopped ")}
    first = {"headway-controller.service", "headway-policy.service"}  # by the first block
    assert stopped | first | {"headway-watchdog.service"} == {unit.name for unit in UNITS}
    users = re.findall(r"^u (\S+)", (ROOT / "systemd/sysusers.d/headway.conf").read_text(), re.M)
    assert {call.split()[1] for call in calls if call.startswith("userdel")} == set(users)
    assert calls.index("stopped headway-web.service") < calls.index("userdel headway-web"), "it would be in use"
    assert calls.index("systemctl daemon-reload") > calls.index("stopped headway-web.service")


def test_the_commands_for_compute_nodes_leave_nothing(tmp_path: Path, uninstalling: list[list[str]]) -> None:
    machine = Machine(tmp_path, [ROOT / "systemd/headway-agent.service"])
    (machine.root / "usr/local/bin/headway").unlink()

    calls = machine.follow(uninstalling[3])

    assert machine.left() == []
    assert calls[-1] == "systemctl daemon-reload"
