"""Roots of Debian releases: made once, copied for each use, entered in namespaces of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
BASE = ("python3", "systemd", "procps", "libmunge2")
"""Packages beside Debian's minimal system that the machine of a slurmctld has, so that an installation downloads nothing."""


def this_release() -> str:
    """Return the code name of this machine's Debian; empty on another system."""
    lines = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    return lines.get("VERSION_CODENAME", "").strip('"') if lines.get("ID") == "debian" else ""


def run(*argv: str | Path, timeout_s: float = 3000.0, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a program; a failure shows its output."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0 or not check, f"{argv}: {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done


def bare_root(release: str, roots: Path) -> Path:
    """Return a root with the base system and nothing of Headway; it must not be changed."""
    root = roots / f"bare-{release}"
    if not (ready := roots / f".bare-{release}-ready").exists():
        shutil.rmtree(root, ignore_errors=True)
        roots.mkdir(parents=True, exist_ok=True)
        run("debootstrap", "--variant=minbase", f"--include={','.join(BASE)}", release, root)
        ready.touch()
    return root


class Root:
    """A copy of a root, with a user slurm, as Slurm's package makes one."""

    def __init__(self, bare: Path, path: Path) -> None:
        run("cp", "-a", "--reflink=auto", bare, path)
        self.path = path
        self.run("useradd", "--system", "--uid", "64030", "--home-dir", "/nonexistent", "slurm")

    def run(self, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a program inside."""
        enter = 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"'
        clean = ("/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8", "TERM=dumb")
        namespaces = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--propagation", "private")
        return run(*namespaces, "sh", "-c", enter, self.path, *clean, *argv, check=check, timeout_s=900)

    def install(self, package: Path, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Install a .deb, without network."""
        shutil.copy(package, self.path / "tmp")
        return self.run("dpkg", "--install", f"/tmp/{package.name}", check=check)

    def files(self) -> set[str]:
        """Return the paths of all files, links and folders."""
        found = set()
        for folder, folders, files in os.walk(self.path):
            at = Path(folder).relative_to(self.path)
            if at.parts[:1] in (("proc",), ("dev",), ("tmp",)) or at.parts[:3] == ("var", "lib", "dpkg"):
                folders.clear()
                continue
            found |= {str(at / name) for name in (*folders, *files)}
        return found

    def text(self, path: str) -> str:
        """Return the content of a file."""
        return (self.path / path.lstrip("/")).read_text()
