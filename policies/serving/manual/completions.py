"""Completion scripts of the programs: those that `PROGRAM --show-completion` prints."""

from __future__ import annotations

from collections.abc import Mapping

PLACES: Mapping[str, str] = {
    "bash": "bash-completion/completions/{program}",
    "zsh": "zsh/vendor-completions/_{program}",
    "fish": "fish/vendor_completions.d/{program}.fish",
}
"""Shell → the file in /usr/share where it looks for the completion of a program."""


def script(program: str, shell: str) -> str:
    """Return the script, which calls the program for each completion."""
    # The other module that has it is private
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
    return f"{get_completion_script(prog_name=program, complete_var=variable, shell=shell)}\n"
