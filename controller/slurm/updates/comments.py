"""Tokens in a job's admin comment: added and removed without any other change of the text."""

from __future__ import annotations


def with_mark(comment: str, mark: str) -> str:
    """Return the comment with another token; nothing else in it changes."""
    return f"{comment} {mark}" if comment else mark


def without_mark(comment: str, mark: str) -> str:
    """Return the comment as it was before `with_mark`; every other character stays."""
    for piece in (f" {mark}", f"{mark} ", mark):
        begin = comment.find(piece)
        while begin >= 0:
            end = begin + len(piece)
            if _stands_alone(comment, begin, end, piece):
                return comment[:begin] + comment[end:]
            begin = comment.find(piece, begin + 1)
    return comment


def exchanged(comment: str, mark: str, instead: str) -> str:
    """Return the comment without one token and with another; an empty `instead` adds none."""
    tokens = comment.split()
    if mark in tokens:
        comment = without_mark(comment, mark)
    return with_mark(comment, instead) if instead and instead not in tokens else comment


def _stands_alone(comment: str, begin: int, end: int, piece: str) -> bool:
    before = piece[0] == " " or begin == 0 or comment[begin - 1].isspace()
    after = piece[-1] == " " or end == len(comment) or comment[end].isspace()
    return before and after
