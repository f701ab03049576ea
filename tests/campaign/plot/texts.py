"""Texts of users and sites, as Slurm permits them: names of users, jobs and partitions, accounts and comments.

Where a text has bytes that are no UTF-8, Headway's parser has escaped them; the fuzz target for scontrol covers that step.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

from tests.campaign.plot.story import Step

_NAMES = (
    "train", "Zoës Netz", "日本語 学習", "𝒳²", 'a "quoted" name', "it's", "lr=1e-3", "first line\nsecond line", "tab\there",
    "x UserId=root(0) GroupId=root(0) MCS_label=", " JobState=RUNNING Reason=None", "AdminComment=headway:hold", "-rf", "%j.%A",
    "\u202egnp.exe", "\u200b", "caf\\xe9", "bell\x07", "{job}", "$(reboot)", "';DROP TABLE job;--", "None", "nan", "é" * 300,
)  # fmt: skip
_COMMENTS = (
    "", "", "größer=besser", "a comment\nof two lines", 'say "hi"', "headway:hold", "headway:user-hold", "日本", "=", "  spaces  ",
    "AdminComment=headway:id=x", "headway=", "headway=größe:3", "x" * 2000,
)  # fmt: skip
_ACCOUNTS = ("", "", "größe", "a=b", "two words", "日本", "ml:team|a")
_USERS = ("zoë", "DOM\\ann smith", "o'neill", "x=y", "名前", "user.with-dots", "1001", "ünï cödé", 'q"uote')
_PARTITIONS = ("dl", "dl", "größe", "分区", "p.1-x", "dl_ä")


def partition_of(chance: random.Random) -> str:
    """Return the name of Headway's partition; slurm.conf allows no space, comma, "=" or quote there."""
    return chance.choice(_PARTITIONS)


def users_of(chance: random.Random, users: Mapping[str, object]) -> dict[str, str]:
    """Return other names for these users: of half of the stories all, else none."""
    names = chance.sample(_USERS, len(users))
    return dict(zip(users, names, strict=True)) if chance.random() < 0.5 else {}


def with_texts(chance: random.Random, steps: list[Step], users: Mapping[str, str]) -> list[Step]:
    """Return the steps with texts for half of the submissions, and with those names of users for all."""
    return [_with_texts(chance, step, users) if step.verb == "submit" else step for step in steps]


def _with_texts(chance: random.Random, step: Step, users: Mapping[str, str]) -> Step:
    user = step.args.get("user", "alice")
    more = {"user": users.get(user, user)}
    if chance.random() < 0.5:
        more |= {
            name: chance.choice(texts)
            for name, texts in (("name", _NAMES), ("comment", _COMMENTS), ("account", _ACCOUNTS))
        }
    return replace(step, args={**step.args, **more})
