"""headway-sim act: agents and policies in one environment."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from simulator.cli import options as shared
from simulator.errors import SettingError

if TYPE_CHECKING:
    from policies.learned.evaluation.statistics import Mean
    from simulator.agents.comparing import AgentComparison

_HOUR_S = 3600.0
_COLUMNS = {
    "return": ("return", 1.0, 3),
    "avg_jct_s": ("average JCT, h", 1 / _HOUR_S, 3),
    "p90_jct_s": ("p90 JCT, h", 1 / _HOUR_S, 3),
    "mean_slowdown": ("mean slowdown", 1.0, 2),
    "utilization": ("GPUs busy, %", 100.0, 1),
    "deviations": ("deviations", 1.0, 1),
}
"""Title, factor and digits of each figure."""


Agents = Annotated[
    list[str] | None,
    typer.Argument(
        help="Policies as for run; uniform; baselines of the environment, such as dl2-drf; "
        "agent:system=NAME,weights=FOLDER for trained agents.",
        metavar="AGENT…",
        show_default=False,
    ),
]
EnvId = Annotated[str | None, typer.Option(help="Gymnasium's id.", metavar="ID", show_default="the trained agent's")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="An option of the environment. May be repeated.", metavar="NAME=VALUE"),
]
Jobs = Annotated[
    str | None,
    typer.Option(
        help="Jobs of the episodes: a generator of headway-sim trace generate.",
        metavar="GENERATOR[:k=v,…]",
        show_default="the environment's",
    ),
]
Seeds = Annotated[int, typer.Option(min=1, max=1000, help="Number of test seeds.")]
OnlyList = Annotated[bool, typer.Option("--list", help="List the control and the baselines.")]


def act(
    agents: Agents = None,
    env: EnvId = None,
    settings: Settings = None,
    workload: Jobs = None,
    seeds: Seeds = 5,
    only_list: OnlyList = False,
    as_json: shared.AsJson = False,
) -> None:
    """Let policies, trained agents and a random control act in one environment, on the same seeds."""
    from policies.learned.training.systems import TEST_SEEDS
    from simulator.agents.comparing import as_json as json_of
    from simulator.agents.comparing import compare_agents
    from simulator.agents.named import env_options, listed, named_agents
    from simulator.runs.progress import Bar

    if only_list:
        _print_list(listed(env), as_json)
        return
    if not agents:
        raise SettingError("no agent is given; give one or more, such as uniform, or --list for their names")
    named = named_agents(agents, env, env_options(settings or (), workload))
    with Bar(f"acting in {named.env}") as bar:
        found = compare_agents(
            named.env, named.options, named.agents, TEST_SEEDS[:seeds], bar.on_progress or (lambda _share: None)
        )
    if as_json:
        typer.echo(json.dumps(json_of(found), indent=2))
    else:
        _print(found)


def _print_list(found: list[dict[str, str]], as_json: bool) -> None:
    from rich.table import Table

    from simulator.results.table import plain_console

    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    table = Table("agent", "environment", "rule", box=None, header_style="bold")
    for row in found:
        table.add_row(row["agent"], row["env"] or "any", row["rule"])
    plain_console(200).print(table)
    typer.echo("policies act too, in environments with jobs: headway-policy list")


def _print(found: AgentComparison) -> None:
    from rich.table import Table

    from simulator.results.table import plain_console

    first = next(iter(found.episodes))
    shown = [figure for figure in _COLUMNS if any(found.mean(name, figure) for name in found.episodes)]
    table = Table("agent", box=None, header_style="bold", title=found.env, title_justify="left", title_style="")
    for figure in shown:
        table.add_column(_COLUMNS[figure][0], justify="right", no_wrap=True)
    has_jobs = "avg_jct_s" in shown
    compared = {"avg_jct_s": "JCT", "mean_slowdown": "slowdown"}
    compared = {figure: title for figure, title in compared.items() if figure in shown}
    for title in compared.values():
        table.add_column(f"{title} against {first}", justify="right", no_wrap=True)
    for name in found.episodes:
        cells = [_text(found.mean(name, figure), *_COLUMNS[figure][1:]) for figure in shown]
        table.add_row(name, *cells, *(_share(found.change(name, first, figure), name == first) for figure in compared))
    plain_console(200).print(table)
    for name in found.episodes:
        if (cut := found.truncated(name)) and has_jobs:
            typer.echo(
                f"{cut} episodes of {name} were cut off before all jobs finished, so its figures of jobs are left out"
            )
    typer.echo(
        f"means over {len(found.seeds)} seeds; ± half of the 95 % interval (Student's t); deviations: actions an episode that are "
        "not exactly what the policy decided"
    )


def _text(mean: Mean | None, unit: float, digits: int) -> str:
    if mean is None:
        return "-"
    about = "" if mean.ci95 is None else f" ± {unit * mean.ci95:,.{digits}f}"
    return f"{unit * mean.mean:,.{digits}f}{about}"


def _share(mean: Mean | None, is_first: bool) -> str:
    if is_first or mean is None:
        return "" if is_first else "-"
    return f"{mean.mean:+.1%}" + ("" if mean.ci95 is None else f" ± {mean.ci95:.1%}")
