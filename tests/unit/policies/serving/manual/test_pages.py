"""Manual pages: every program, command, argument and option is in them, and troff accepts them."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from policies.serving.manual.__main__ import files, main
from policies.serving.manual.roff import page
from policies.serving.manual.tree import CommandText, Entry, programs

ROOT = Path(__file__).resolve().parents[5]
DECLARED = sorted(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"])

_WIDTH = 64
"""Characters of a line in the list of commands, on a terminal of 80 columns."""


@cache
def pages() -> dict[str, str]:
    """Return the text of each page by the name of its program."""
    return {path.stem: text for path, text in files() if path.parts[0] == "man"}


def plain(roff: str) -> str:
    """Return the text without the escapes and macros of troff."""
    marks = {
        "\\-": "-",
        "\\(aq": "'",
        "\\(ha": "^",
        "\\(ti": "~",
        "\\(dq": '"',
        "\\&": "",
        "\\fB": "",
        "\\fR": "",
        "\\e": "\\",
    }
    for mark, meant in marks.items():
        roff = roff.replace(mark, meant)
    return roff


def parts(program: str) -> dict[str, str]:
    """Return the text of each command by its name; of the program itself by an empty name."""
    text = plain(pages()[program])
    head, *sections = re.split(r'^\.SS "([^"]+)"$', text, flags=re.MULTILINE)
    found = dict(zip(sections[::2], sections[1::2], strict=True))
    return {"": head, **found}


def walk(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield name and command of a command tree as typer has it, the program itself with an empty name."""
    yield " ".join(words), command
    for name, each in getattr(command, "commands", {}).items():
        yield from walk(each, (*words, name))


def test_every_program_has_a_page() -> None:
    assert sorted(pages()) == DECLARED


def named(parameter: Any) -> list[str]:
    """Return the words by which the page has to name a parameter, in lower case."""
    if parameter.param_type_name == "option":
        return [word.lower() for word in (*parameter.opts, *parameter.secondary_opts)]
    return [(parameter.metavar or parameter.name).lower().strip("[].")]


def absent(name: str, command: Any, text: str) -> Iterator[str]:
    """Yield the parameters of a command that have no entry, or not their help, in its part of the page."""
    entries = re.findall(r"^\.TP\n(.*)$", text, re.MULTILINE)
    heads = [{word.strip("[].") for word in re.split(r"[\s,/]+", entry.lower())} for entry in entries]
    for parameter in command.params:
        for word in named(parameter):
            if not any({*word.split()} <= head for head in heads):
                yield f"{name} {word}"
        if " ".join((parameter.help or "").split()).replace("`", "") not in text:
            yield f"{name} {parameter.name}: its help"


@pytest.mark.parametrize("program", DECLARED)
def test_every_command_and_option_is_in_the_page(program: str) -> None:
    texts = parts(program)
    tree = dict(walk(programs()[program]))
    assert sorted(texts) == sorted(tree)
    assert [line for name, command in tree.items() for line in absent(name, command, texts[name])] == []


def test_hidden_commands_and_variables() -> None:
    assert "HEADWAY_CONFIG" in parts("headway")["profile export"].partition("ENVIRONMENT")[2]
    assert pages()["headway"].count(".SH ENVIRONMENT") == 1
    assert "Exit codes: 0 done" in plain(pages()["headway"]).partition(".SH EXIT STATUS")[2]
    assert "headway-controller(8)" in plain(pages()["headway"])


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
@pytest.mark.parametrize("program", DECLARED)
def test_troff_accepts_the_page_and_prints_it(program: str) -> None:
    argv = ("groff", "-man", "-ww", "-Kutf8", "-Tutf8", "-P-cbou")
    done = subprocess.run(argv, input=pages()[program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ""
    assert f"{program} [OPTIONS]" in done.stdout


def test_texts_are_printed_as_they_are_and_never_read_as_macros() -> None:
    text = CommandText(
        words=("x",), usage="[OPTIONS]", paragraphs=(".so /etc/passwd is \\no macro", "'quoted' `code-word`"), arguments=(),
        options=(Entry("--a", "it's a-b"), Entry("--none", "")), epilog="", variables=(),
    )  # fmt: skip

    found = page([text], "1.0", {"x": 1}).splitlines()

    assert "\\&.so /etc/passwd is \\eno macro" in found
    assert "\\(aqquoted\\(aq \\fBcode\\-word\\fR" in found
    assert [line for line in found if line[:1] in {".", "'"} and not re.match(r"\.(TH|SH|PP|TP|nh|ad)\b", line)] == []
    assert found[found.index("\\fB\\-\\-none\\fR") + 1] == "\\&"


def test_the_files_are_in_the_layout_of_usr_share(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--out", str(tmp_path / "share")]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/share\n"
    written = {str(path.relative_to(tmp_path / "share")) for path in (tmp_path / "share").rglob("*") if path.is_file()}
    assert {"man/man1/headway.1", "man/man8/headway-agent.8", "bash-completion/completions/headway-sim"} <= written
    assert {"zsh/vendor-completions/_headway", "fish/vendor_completions.d/headway.fish"} <= written
    assert len(written) == 4 * len(DECLARED)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "share").write_text("a file")
    with pytest.raises(SystemExit) as ended:
        main(["--out", str(tmp_path / "share")])
    assert ended.value.code == 2
    assert f"{tmp_path}/share/man/man1: cannot be written" not in capsys.readouterr().out


def test_no_list_of_commands_has_lines_that_are_cut() -> None:
    cut = []
    for program, command in programs().items():
        for name, each in walk(command):
            # With rich, lines wrap.
            line = each.get_short_help_str(_WIDTH) if each.rich_markup_mode is None else ""
            if name and line.endswith("..."):
                cut.append(f"{program} {name}: {line}")
    assert cut == []
