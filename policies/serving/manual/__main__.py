"""`python -m policies.serving.manual --out FOLDER`: write manual pages and completions in the layout of /usr/share."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from policies.serving.manual import completions, roff
from policies.serving.manual.tree import commands, programs
from policies.serving.runtime.version import VERSION

ADMINISTRATORS = 8
USERS = 1
_OF_ADMINISTRATORS = frozenset({"headway-agent", "headway-controller", "headway-minicluster", "headway-setup"})


def files() -> Iterator[tuple[Path, str]]:
    """Yield path below /usr/share and text of every manual page and every completion."""
    found = programs()
    sections = {name: ADMINISTRATORS if name in _OF_ADMINISTRATORS else USERS for name in found}
    for name, command in found.items():
        page = roff.page(tuple(commands(name, command)), VERSION, sections)
        yield Path(f"man/man{sections[name]}/{name}.{sections[name]}"), page
        for shell, place in completions.PLACES.items():
            yield Path(place.format(program=name)), completions.script(name, shell)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files, and print the folder."""
    parser = argparse.ArgumentParser(prog="python -m policies.serving.manual", description=__doc__)
    parser.add_argument(
        "--out", type=Path, required=True, help="folder, with the layout of /usr/share; created if missing"
    )
    out: Path = parser.parse_args(arguments).out
    for place, text in files():
        path = out / place
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            parser.error(f"{path}: cannot be written ({error.strerror}); choose another --out")
    sys.stdout.write(f"{out}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
