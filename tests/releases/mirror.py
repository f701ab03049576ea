"""Debian's mirror, from this machine's own settings of apt."""

from __future__ import annotations

import subprocess

_FORMAT = "$(LABEL) $(COMPONENT) $(REPO_URI)"


def debian_mirror() -> str | None:
    """Return the address of the mirror from which this machine installs packages of Debian; None if apt names none.

    apt knows which of its sources is Debian only when it has their lists (`apt-get update`).
    """
    words = ("apt-get", "indextargets", "--format", _FORMAT, "Created-By: Packages")
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        return None
    return named_mirror(done.stdout)


def named_mirror(targets: str) -> str | None:
    """Return the first repository that is Debian itself, from the lines of `apt-get indextargets`: label, component, address.

    Security updates ("Debian-Security") and packages of others are in repositories with other labels.
    """
    for line in targets.splitlines():
        label, _, rest = line.partition(" ")
        component, _, address = rest.partition(" ")
        if label == "Debian" and component == "main" and address:
            return address.rstrip("/")
    return None
