"""Command trees of the installed programs, as plain text for a manual page."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

_PREFIX = "headway"
_BRACES = re.compile(r"\{([^{}|]+)\}")
"""Typer's marks of an argument that must be given; manual pages write it plainly, and others in brackets."""
_SEVERAL_BLANKS = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Entry:
    """An argument or an option."""

    name: str
    """As it is typed: "-c, --config FILE"."""
    help: str
    """One paragraph; empty without a help text."""


@dataclass(frozen=True, slots=True)
class CommandText:
    """One command. The first one of a program is the program itself."""

    words: tuple[str, ...]
    """The program and the names of the command: ("headway", "policy", "use")."""
    usage: str
    """Form of its options and arguments: "[OPTIONS] ADDRESS"."""
    paragraphs: tuple[str, ...]
    arguments: tuple[Entry, ...]
    options: tuple[Entry, ...]
    epilog: str
    variables: tuple[Entry, ...]
    """Environment variables that stand for an option."""


def programs() -> dict[str, Any]:
    """Return name → command (typer's own) of each program of Headway that is installed, sorted by name."""
    import typer.main

    ours = {entry.name: entry for entry in entry_points(group="console_scripts") if entry.name.startswith(_PREFIX)}
    apps = {name: importlib.import_module(ours[name].module).app for name in sorted(ours)}
    return {name: typer.main.get_command(app) for name, app in apps.items()}


def commands(name: str, command: Any) -> Iterator[CommandText]:
    """Yield the program, and then its commands with their own commands behind them. Hidden commands are left out."""
    yield from _walk(command, command.context_class(command, info_name=name))


def _walk(command: Any, context: Any) -> Iterator[CommandText]:
    yield _text(command, context)
    for name, found in getattr(command, "commands", {}).items():
        if not found.hidden:
            yield from _walk(found, found.context_class(found, info_name=name, parent=context))


def _text(command: Any, context: Any) -> CommandText:
    # --help is among them
    shown = [parameter for parameter in command.get_params(context) if not getattr(parameter, "hidden", False)]
    return CommandText(
        words=tuple(context.command_path.split()),
        usage=_BRACES.sub(r"\1", " ".join(command.collect_usage_pieces(context))),
        paragraphs=_paragraphs(command.help or ""),
        arguments=tuple(_entry(each, context) for each in shown if each.param_type_name == "argument"),
        options=tuple(_entry(each, context) for each in shown if each.param_type_name == "option"),
        epilog=_one_line(command.epilog or ""),
        variables=tuple(_variable(each) for each in shown if isinstance(each.envvar, str)),
    )


def _entry(parameter: Any, context: Any) -> Entry:
    name, text = parameter.get_help_record(context)
    return Entry(name, _one_line(text))


def _variable(parameter: Any) -> Entry:
    return Entry(parameter.envvar, f"Stands for {parameter.opts[0]}, which has precedence.")


def _paragraphs(text: str) -> tuple[str, ...]:
    return tuple(_one_line(part) for part in inspect.cleandoc(text).split("\n\n") if part.strip())


def _one_line(text: str) -> str:
    return _SEVERAL_BLANKS.sub(" ", text).strip()
