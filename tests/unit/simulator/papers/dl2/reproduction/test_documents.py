"""The tables of docs/policies/dl2.md show the stored runs, and the findings of the claims."""

from __future__ import annotations

from functools import cache
from itertools import chain
from pathlib import Path

from simulator.papers.dl2.reproduction import details, stored
from simulator.papers.dl2.reproduction.contenders import BOUND
from simulator.papers.dl2.reproduction.experiment import experiment
from simulator.papers.dl2.reproduction.settings import MAIN
from simulator.papers.dl2.reproduction.trainings import FIFO_TAUGHT, PAPER, PPO, TRAININGS
from simulator.reproducing.experiment import ClaimFinding, ExperimentResults, perform
from simulator.reproducing.report import as_word

_DOCS = Path(__file__).parents[6] / "docs" / "policies" / "dl2.md"
_AGENTS = (PAPER, FIFO_TAUGHT, PPO)
"""The agents that have columns of their own in the first table of claims."""
_PREFIX = {"avg_jct_s": "", "makespan_s": "makespan ", "utilization": "utilization "}


@cache
def results() -> ExperimentResults:
    return perform(experiment(quick=True), stored.SEEDS, lambda _share: None, 1)


def table(head: str) -> list[list[str]]:
    """Return the cells of every table of the documents that begins with this head, without marks."""
    parts = _DOCS.read_text(encoding="utf-8").split(f"\n{head}\n")[1:]
    assert parts, f"there is no table {head}"
    lines = chain.from_iterable(part.partition("\n\n")[0].splitlines()[1:] for part in parts)
    return [[cell.strip().replace("*", "") for cell in line.strip("|").split("|")] for line in lines]


def figures_of(name: str) -> list[str]:
    """Return the cells of a contender as the documents have them; empty where it has no such figure."""
    jct, p90, used = (results().mean(MAIN.name, name, metric) for metric in ("avg_jct_s", "p90_jct_s", "utilization"))
    assert jct is not None and jct.ci95 is not None
    return [
        f"{jct.mean / 3600:.2f} ± {jct.ci95 / 3600:.2f}",
        "" if p90 is None else f"{p90.mean / 3600:.1f}",
        "" if used is None else f"{used.mean:.0%}".replace("%", " %"),
    ]


def share(value: float | None, sign: str = "+") -> str:
    return "" if value is None else f"{100 * value:{sign}.1f} %"


def cells_of(found: ClaimFinding) -> tuple[str, str, str, str]:
    """Return the cells of a finding: the paper, the goal, the result here, and whether it holds."""
    assert found.ours.ci95 is not None
    here = f"{share(found.ours.mean)} ± {100 * found.ours.ci95:.1f}"
    return share(found.claim.paper), share(found.claim.goal), here, as_word(found)


def words_of(found: ClaimFinding) -> str:
    """Return the words of a claim, without its agent."""
    claim = found.claim
    words = claim.name.removeprefix(f"{claim.ours}: {claim.metric} ").removesuffix(f", {claim.setting}")
    return f"{_PREFIX[claim.metric]}{words}" + ("" if claim.setting == MAIN.name else f", {claim.setting}")


def test_every_row_shows_the_stored_runs_and_every_stored_run_has_a_row() -> None:
    rows = table("| agent | average JCT, h | p90 JCT, h | GPUs in use |")
    trainings = table("| training | teacher and change | average JCT, h | p90 JCT, h | GPUs in use |")
    shown = [*((row[0], row[1:]) for row in rows), *((row[0], row[2:]) for row in trainings)]
    names = [name.split("`")[1] if "`" in name else name for name, _ in shown]
    assert {*names} == {*stored.RUNS.read()[MAIN.name]}
    for name, (_, cells) in zip(names, shown, strict=True):
        assert cells == figures_of(name), name


def test_the_times_of_decisions_are_those_that_are_stored() -> None:
    rows = table(
        "| weights | actions of the slot | an action, ms: median, 99th percentile "
        "| all actions of the slot, ms: least, median, longest |"
    )
    found = details.stored_inference()
    assert [row[0].strip("`") for row in rows] == [*found]
    for (_, *cells), each in zip(rows, found.values(), strict=True):
        action, slot = each["action_ms"], each["slot_ms"]
        assert cells == [
            str(each["actions_of_a_slot"]),
            f"{action['median']:.2f}, {action['p99']:.2f}",
            f"{slot['least']:.1f}, {slot['median']:.1f}, {slot['most']:.1f}",
        ]


def test_the_first_table_of_claims_shows_what_was_found_of_three_agents() -> None:
    head = "| claim | the paper | the goal | `dl2` | holds | `teacher-fifo` | holds | `dl2-ppo` | holds |"
    rows = table(head)
    found = {(each.claim.ours, words_of(each)): cells_of(each) for each in results().findings()}
    for words, paper, goal, *cells in rows:
        for agent, here, holds in zip(_AGENTS, cells[::2], cells[1::2], strict=True):
            assert (paper, goal, here, holds) == found.get((agent, words), (paper, goal, "", "")), (agent, words)


def test_the_other_tables_of_claims_show_what_was_found_and_no_claim_is_left_out() -> None:
    first = table("| claim | the paper | the goal | `dl2` | holds | `teacher-fifo` | holds | `dl2-ppo` | holds |")
    rows = table("| claim | against | the paper | the goal | here, seed by seed | holds |")
    shown = {(agent, row[0]) for row in first for agent, here in zip(_AGENTS, row[3::2], strict=True) if here}
    found = {(each.claim.ours, words_of(each)): each for each in results().findings()}
    for name, against, *cells in rows:
        agent, _, words = name.partition(": ")
        key = (agent, words)
        assert (against, *cells) == (f"`{found[key].against}`", *cells_of(found[key])), name
        shown.add(key)
    assert shown == {*found}


def test_goals_of_figure_9_are_called_impossible_where_the_lower_bound_does_not_reach_them() -> None:
    bounds = {each.against: each for each in results().findings() if each.claim.ours == BOUND}
    impossible = {name for name, each in bounds.items() if not each.mean_holds}
    assert {"dl2-drf", "dl2-optimus"} <= bounds.keys() - impossible
    assert "offline-rl" in impossible
    (line,) = [each for each in _DOCS.read_text(encoding="utf-8").splitlines() if each.startswith("**Impossible goals")]
    assert {name for name in bounds if f"`{name}`" in line} == impossible


def test_goals_are_called_possible_where_the_mean_of_an_agent_reaches_them() -> None:
    text = " ".join(_DOCS.read_text(encoding="utf-8").split())
    mine = [each for each in results().findings() if each.claim.ours == PPO and "(figure 9)" in each.claim.name]
    agents = {each.against: each for each in mine}
    for name, each in {each.against: each for each in results().findings() if each.claim.ours == BOUND}.items():
        assert f"`{name}`" in text
        if each.mean_holds:
            assert agents[name].mean_holds, name
    assert (
        "The bound excludes no other goal of figure 9" in text and "`dl2-ppo`, whose mean reaches all of them" in text
    )


def test_agents_are_called_taught_alike_only_if_their_trainings_differ_in_the_speeds_alone() -> None:
    alike = [each.claim for each in results().findings() if each.claim.name.split(", ")[1:2] == ["taught alike"]]
    assert {claim.ours for claim in alike} == {"teacher-drf", "teacher-fifo"}
    for claim in alike:
        (against,) = claim.against
        assert {*TRAININGS[against].settings} ^ {*TRAININGS[claim.ours].settings} == {"speeds=analytical"}, claim.name
