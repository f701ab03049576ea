"""A site's own job_submit.lua: how it loads Headway's, and from which line. Pure functions over the text.

No compiler of Lua is needed: words outside of comments and strings are enough to follow the blocks of a script.
"""

from __future__ import annotations

import re
from bisect import bisect_right

_COMMENT_OR_STRING = re.compile(
    r"""
    --\[(?P<a>=*)\[.*?(?:\](?P=a)\]|\Z) | --[^\n]*+          # comments
    | "(?:\\.|[^"\\\n])*+" | '(?:\\.|[^'\\\n])*+'           # strings
    | \[(?P<b>=*)\[.*?(?:\](?P=b)\]|\Z)
    """,
    re.DOTALL | re.VERBOSE,
)
"""A comment (with or without long brackets) or a string of Lua: "--" within a string begins no comment."""
_NAME_OF_OURS = re.compile(r"""headway\.lua(?!\w)|\brequire\s*+\(?\s*+(?:["']|\[=*\[)headway(?:["']|\])""")
_LOADER = re.compile(r"\b(?:dofile|loadfile|require)\b")
_BLOCK_WORD = re.compile(r"\b(?:function|if|do|repeat|end|until|return)\b")
"""Words that open a block (`for` and `while` do it with `do`), words that close one, and `return`."""
_FUNCTIONS = ("slurm_job_submit", "slurm_job_modify")
"""The functions that slurmctld calls."""
PLACE = "as its last line, but before a final `return`"
"""The place for the line that loads Headway's script."""


def loads_ours(text: str) -> bool:
    """Return whether a site's own job_submit.lua loads Headway's: it names the file, and calls a function that loads files."""
    return names_ours(text) and _LOADER.search(_code(text)) is not None


def names_ours(text: str) -> bool:
    """Return whether a site's own job_submit.lua names Headway's outside of comments, so that it may load it in some way."""
    return _NAME_OF_OURS.search(_code(text)) is not None


def misplaced(text: str) -> str | None:
    """Return why a site's script that loads Headway's does so at the wrong place; None where nothing speaks against the place.

    Lua allows nothing after a `return` of the script itself. A function that the site defines after the line replaces Headway's,
    unless the site keeps Headway's and calls it: then it reads the name first.
    """
    code = _code(text)
    words = _COMMENT_OR_STRING.sub(lambda found: re.sub(r"[^\n]", '"', found[0]), code)
    at = _place_of_loader(code, words)
    if at is None:
        return None
    in_function, returned = _blocks_before(words, at)
    here = f"line {_line(words, at)} loads Headway's script"
    if returned is not None and _is_another_statement(words[returned + len("return") : at]):
        end = _line(words, returned)
        return (
            f"{here} after the `return` of line {end}, where Lua allows nothing: slurmctld does not start again with it"
        )
    for name in () if in_function else _FUNCTIONS:
        later = re.compile(rf"\bfunction\s+{name}\b|\b{name}\s*=(?!=)").search(words, at)
        if later and not re.search(rf"[=,(]\s*(?:_G\s*\.\s*)?{name}\b", words[at : later.start()]):
            return f"{here}, and line {_line(words, later.start())} defines {name} after it, in place of Headway's"
    return None


def _code(text: str) -> str:
    """Return a script with blanks in the place of comments; everything else stays where it is."""
    return _COMMENT_OR_STRING.sub(
        lambda found: re.sub(r"[^\n]", " ", found[0]) if found[0].startswith("--") else found[0], text
    )


def _place_of_loader(code: str, words: str) -> int | None:
    """Return where Headway's script is loaded: the last line that names it, else the last that loads any file; None without one."""
    loaders = [found.start() for found in _LOADER.finditer(words)]
    ends = [found.start() for found in re.finditer(r"\n|\b(?:dofile|loadfile|require)\b|\Z", words)]
    direct = [at for at in loaders if _NAME_OF_OURS.search(code, at, ends[bisect_right(ends, at)])]
    return max(direct or loaders, default=None)


def _blocks_before(words: str, at: int) -> tuple[bool, int | None]:
    """Return whether a place is in a function, and where the first `return` of the script itself before it is; None without one."""
    opened: list[str] = []
    returned = None
    for found in _BLOCK_WORD.finditer(words, 0, at):
        word = found[0]
        if word in {"end", "until"}:
            if opened:
                opened.pop()
        elif word != "return":
            opened.append(word)
        elif not opened and returned is None:
            returned = found.start()
    return "function" in opened, returned


def _is_another_statement(between: str) -> bool:
    """Return whether what follows is not part of a `return`, such as `return dofile(...)`: the text between the two shows it."""
    if sum(between.count(each) for each in "({") > sum(between.count(each) for each in ")}"):
        return False
    return any(each in between.lstrip() for each in "\n;")


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1
