"""A manual page from the texts of a program's commands, in the macros of man(7)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from policies.serving.manual.tree import CommandText, Entry

_CODE = re.compile(r"`([^`]+)`")


def page(texts: Sequence[CommandText], version: str, sections: Mapping[str, int]) -> str:
    """Return the page of a program. `texts` begins with the program itself; `sections` has the section of every program."""
    program = texts[0]
    name = program.words[0]
    lines = [
        f'.TH {_quoted(name.upper())} {sections[name]} "" {_quoted(f"Headway {version}")} "Headway Manual"',
        # A page of option names must not be hyphenated or spread to full lines.
        ".nh",
        ".ad l",
        ".SH NAME",
        f"{_text(name)} \\- {_text(_summary(program))}",
        ".SH SYNOPSIS",
        *_synopsis(program),
        ".SH DESCRIPTION",
        *_paragraphs(program.paragraphs),
        *_entries(".SH OPTIONS", program.options),
    ]
    if texts[1:]:
        lines.append(".SH COMMANDS")
    for text in texts[1:]:
        lines += _command(text)
    lines += _entries(".SH ENVIRONMENT", list(dict.fromkeys(each for text in texts for each in text.variables)))
    if program.epilog:
        lines += [".SH EXIT STATUS", _text(program.epilog)]
    others = ", ".join(f"\\fB{_text(other)}\\fR({section})" for other, section in sections.items() if other != name)
    return "\n".join([*lines, *([".SH SEE ALSO", others] if others else [])]) + "\n"


def _summary(program: CommandText) -> str:
    """Return the first sentence without the name of the program and without a full stop."""
    sentence = program.paragraphs[0].removeprefix(f"{program.words[0]}: ") if program.paragraphs else ""
    return re.split(r"(?<=[^.])\. ", sentence, maxsplit=1)[0].rstrip(".")


def _command(text: CommandText) -> Iterator[str]:
    yield f".SS {_quoted(_text(' '.join(text.words[1:])))}"
    yield from _synopsis(text)
    yield from _paragraphs(text.paragraphs)
    yield from _tagged((*text.arguments, *text.options))


def _synopsis(text: CommandText) -> Iterator[str]:
    yield f"\\fB{_text(' '.join(text.words))}\\fR {_text(text.usage)}".rstrip()


def _paragraphs(texts: Sequence[str]) -> Iterator[str]:
    for text in texts:
        yield ".PP"
        yield _text(text)


def _entries(heading: str, entries: Sequence[Entry]) -> Iterator[str]:
    if entries:
        yield heading
        yield from _tagged(entries)


def _tagged(entries: Sequence[Entry]) -> Iterator[str]:
    for entry in entries:
        yield ".TP"
        yield f"\\fB{_text(entry.name)}\\fR"
        yield _text(entry.help) or "\\&"


def _text(text: str) -> str:
    """Return the text so that troff prints it as it is; `code` is bold."""
    escaped = (
        text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("^", "\\(ha").replace("~", "\\(ti")
    )
    escaped = _CODE.sub(r"\\fB\1\\fR", escaped)
    return f"\\&{escaped}" if escaped.startswith(".") else escaped


def _quoted(text: str) -> str:
    return '"' + text.replace('"', "\\(dq") + '"'
