"""Answers of sshare and sacctmgr, as 22.05.8 prints them."""

from __future__ import annotations

import pytest

from controller.base.errors import SlurmReplyError
from controller.slurm.model.shares import QosPreemption, Shares
from controller.slurm.scontrol.parse_shares import parse_associations, parse_fair_shares, parse_qos

SSHARE = "root|||\n root|root||1.000000\n lab|||\n  lab|daemon||0.250000\n  lab|daemon|hi|0.125000\n other|||\n"


def test_each_association_of_a_user_has_a_factor() -> None:
    found = parse_fair_shares(SSHARE)
    assert found == {("root", "root", ""): 1.0, ("lab", "daemon", ""): 0.25, ("lab", "daemon", "hi"): 0.125}
    shares = Shares(found)
    assert shares.fair_share_of("lab", "daemon", "hi") == 0.125
    assert shares.fair_share_of("lab", "daemon", "dl") == 0.25
    assert shares.fair_share_of("lab", "eve", "dl") == 0.0
    assert parse_fair_shares("") == {}


@pytest.mark.parametrize("text", ["lab|ann", "lab|ann||many", "lab|ann||nan", "lab|ann||2", "sshare: error: away"])
def test_other_answers_of_sshare_are_refused(text: str) -> None:
    with pytest.raises(SlurmReplyError, match="sshare: not"):
        parse_fair_shares(text)


def test_each_qos_has_a_priority_and_its_preemption() -> None:
    priorities, preemption = parse_qos(
        "normal|0||cluster||00:00:00\nurgent|50|low,normal|cancel|00:05:00|00:00:04\nlow|0||off|-1|\n"
    )
    assert priorities == {"normal": 0, "urgent": 50, "low": 0}
    assert preemption == {
        "normal": QosPreemption(),
        "urgent": QosPreemption(frozenset({"low", "normal"}), "CANCEL", 300.0, 4.0),
        "low": QosPreemption(mode="OFF"),
    }
    assert parse_qos("") == ({}, {})


@pytest.mark.parametrize("text", ["normal", "normal|", "normal|high||cluster||", "normal|-1||cluster||", "normal|0"])
def test_other_answers_of_sacctmgr_are_refused(text: str) -> None:
    with pytest.raises(SlurmReplyError, match="sacctmgr show qos: not understood"):
        parse_qos(text)


def test_associations_with_a_priority_have_it() -> None:
    found = parse_associations("root|||\nroot|root||\nlab|||40\nlab|ann||40\nlab|ann|hi|7\n")
    assert found == {("lab", "", ""): 40, ("lab", "ann", ""): 40, ("lab", "ann", "hi"): 7}
    shares = Shares(association=found)
    asked = (("lab", "ann", "hi"), ("lab", "ann", "dl"), ("root", "root", "dl"))
    assert [shares.association_priority_of(*one) for one in asked] == [7, 40, 0]
    assert parse_associations("") == {}


@pytest.mark.parametrize("text", ["lab|ann", "lab|ann||many", "lab|ann||-7", "lab|ann||1|2"])
def test_other_answers_about_associations_are_refused(text: str) -> None:
    with pytest.raises(SlurmReplyError, match="sacctmgr show associations: not understood"):
        parse_associations(text)
