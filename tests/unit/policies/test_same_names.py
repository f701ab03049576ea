"""Policies of several packages with one name: Headway's own keeps it, and two strangers have to settle it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from policies.api import hidden_policies, installed_policies, load_policy, option_names, parse_policy
from policies.errors import PolicyLoadError
from policies.serving.cli.app import app

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install packages before all others, each with a policy of that name."""

    def do(name: str, *packages: str) -> None:
        for package in packages:
            folder = tmp_path / package
            info = folder / f"{package}-1.dist-info"
            info.mkdir(parents=True)
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
            (info / "entry_points.txt").write_text(f"[headway.policies]\n{name} = {package}_rule:Mine\n")
            (folder / f"{package}_rule.py").write_text(
                "from policies.api import Decision, PolicySpec\n"
                "class Mine:\n"
                f"    spec = PolicySpec(name={name!r}, source={package!r})\n"
                "    def __init__(self, number='', limit: int = 1, share: float | None = None, flip: bool = False,\n"
                "                 word: str = '', some: 'str | int' = 0, rest: 'list[int]' = ()) -> None: ...\n"
                "    def decide(self, state): return Decision({})\n"
            )
            monkeypatch.syspath_prepend(str(folder))

    return do


def test_a_package_does_not_replace_a_policy_of_headways_not_even_the_fallback(install: Install) -> None:
    install("backfill", "aa_research")
    policy = load_policy(*parse_policy("backfill:order=slurm"))
    assert type(policy).__module__.startswith("policies.")
    assert "order" in option_names("backfill")
    assert hidden_policies() == [("backfill", "aa-research", "aa_research_rule:Mine")]


def test_the_list_has_the_policy_that_is_not_used(install: Install) -> None:
    install("srtf", "aa_research")
    listed = json.loads(CliRunner().invoke(app, ["list", "--json"]).stdout)
    assert listed["hidden"] == [{"name": "srtf", "package": "aa-research", "object": "aa_research_rule:Mine"}]
    assert [each["name"] for each in listed["policies"]].count("srtf") == 1
    text = " ".join(CliRunner().invoke(app, ["list"], env={"COLUMNS": "200"}).stdout.split())
    assert "not used: aa_research_rule:Mine of aa-research" in text


def test_two_packages_with_one_name_are_refused_by_their_names(install: Install) -> None:
    install("newest-first", "aa_research", "bb_research")
    with pytest.raises(PolicyLoadError, match=r"aa-research .* and bb-research .*uninstall all but one"):
        load_policy("newest-first")
    with pytest.raises(PolicyLoadError, match="several packages"):
        option_names("newest-first")
    assert parse_policy("newest-first:number=42") == ("newest-first", {"number": 42})
    assert "several packages" in installed_policies()[1]["newest-first"]
    assert hidden_policies() == []


def test_a_name_of_one_package_is_used(install: Install) -> None:
    install("newest-first", "aa_research")
    assert load_policy("newest-first").spec.source == "aa_research"


@pytest.mark.parametrize(
    ("option", "wanted"),
    [
        ("flip=no", "flip is 'no'; give true or false"),
        ("flip=1", "flip is 1; give true or false"),
        ("limit=abc", "limit is 'abc'; give a whole number"),
        ("limit=1.5", "limit is 1.5; give a whole number"),
        ("limit=true", "limit is True; give a whole number"),
        ("share=half", "share is 'half'; give a number"),
        ("some=1.5", "some is 1.5; give a whole number or a text"),
    ],
)
def test_an_option_of_another_kind_than_its_annotation_is_refused(install: Install, option: str, wanted: str) -> None:
    install("newest-first", "aa_research")
    with pytest.raises(PolicyLoadError, match=f"{wanted}$"):
        load_policy(*parse_policy(f"newest-first:{option}"))


@pytest.mark.parametrize(
    "option", ["flip=true", "limit=-3", "share=1", "share=0.5", "word=42", "some=3", "some=x", "rest=x", "number=1.5"]
)
def test_an_option_of_the_kind_of_its_annotation_or_of_no_known_one_is_taken(install: Install, option: str) -> None:
    install("newest-first", "aa_research")
    assert load_policy(*parse_policy(f"newest-first:{option}")).spec.source == "aa_research"


def test_an_option_may_be_none_where_python_gives_it(install: Install) -> None:
    install("newest-first", "aa_research")
    assert load_policy("newest-first", {"share": None}).spec.source == "aa_research"
