"""Comments of one record of `scontrol show job`: free text between the paths and the request for GPUs."""

from __future__ import annotations

from dataclasses import dataclass

from controller.slurm.scontrol import values

_COMMENT_ENDS = (" SystemComment=", " Comment=", " Extra=", " StdErr=", " Power=", " TresPer")
_TEXT_KEYS = (
    " Command=",
    " WorkDir=",
    " AdminComment=",
    " SystemComment=",
    " Comment=",
    " Extra=",
    " StdErr=",
    " StdOut=",
)


@dataclass(frozen=True, slots=True)
class Texts:
    """Comments of a record. `exact`: the administrators' comment can be read in only one way."""

    admin_comment: str
    comment: str
    exact: bool


def texts_of(tail: str) -> Texts:
    """Return the comments. They come after the paths: the administrators', the user's, then the text of --extra."""
    after = max(tail.find(" WorkDir="), 0)
    comment_at = tail.find(" Comment=", after)
    admin_at = tail.find(" AdminComment=", after)
    exact = all(tail.count(key) <= 1 for key in _TEXT_KEYS)
    extra_at = tail.find(" Extra=", after)
    if 0 <= extra_at < comment_at:
        comment_at = -1  # a piece of the user's --extra
    if 0 <= comment_at < admin_at or 0 <= extra_at < admin_at:
        exact, admin_at = False, -1  # a piece of the user's text
    admin_comment, admin_end = _comment(tail, admin_at)
    comment, comment_end = _comment(tail, comment_at)
    if admin_at >= 0 and tail.startswith((" SystemComment=", " Comment="), admin_end):
        # Slurm 22.05 prints a space more after comments: a field that follows without it is a piece of the comment.
        exact = exact and (tail[admin_end - 1] == " " or tail[comment_end - 1] != " ")
    return Texts(admin_comment, comment, exact)


def _comment(tail: str, begin: int) -> tuple[str, int]:
    """Return the comment that begins there, and its end."""
    if begin < 0:
        return "", len(tail)
    begin = tail.index("=", begin) + 1
    end = min((i for other in _COMMENT_ENDS if (i := tail.find(other, begin)) >= 0), default=len(tail))
    return values.plain(tail[begin:end].removesuffix(" ")), end
