"""Agents and environments by the texts of the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from policies.api import load_policy, parse_policy
from policies.learned.training.agents import Agent, AgentInEnvironment, UniformAgent
from policies.learned.training.systems import TRAINED, trained_agent
from simulator.agents.policy_agent import PolicyAgent
from simulator.envs import baseline_class, baselines
from simulator.errors import SettingError
from simulator.traces.generators import from_text

UNIFORM = "uniform"
_WORDS: Mapping[str, object] = {"true": True, "false": False, "none": None}


@dataclass(frozen=True, slots=True)
class NamedAgents:
    """Agents by their texts, and the environment in which they act."""

    env: str
    options: Mapping[str, Any]
    agents: Mapping[str, Agent]


def named_agents(texts: Sequence[str], env: str | None, options: Mapping[str, Any]) -> NamedAgents:
    """Make the agents. Without `env`, they act in the environment of the first trained agent, with its options.

    Raises SettingError, and PolicyError for policies and weights that cannot be loaded.
    """
    made: dict[str, Agent | AgentInEnvironment] = {}
    for text in texts:
        if text in made:
            raise SettingError(f"{text} is given twice; leave one out")
        made[text] = agent_of(text)
    trained = {text: agent for text, agent in made.items() if isinstance(agent, AgentInEnvironment)}
    if env is None and not trained:
        raise SettingError(f"no environment is given; give --env, or {TRAINED}:system=NAME, which brings its own")
    of_first = next(iter(trained.values())) if trained else None
    where = env or (of_first.env if of_first else "")
    chosen = {**(of_first.options if of_first and of_first.env == where else {}), **options}
    for text, agent in trained.items():
        _check(text, agent, where, chosen)
    return NamedAgents(
        where,
        chosen,
        {text: agent.agent if isinstance(agent, AgentInEnvironment) else agent for text, agent in made.items()},
    )


def agent_of(text: str) -> Agent | AgentInEnvironment:
    """Return the agent of `uniform`, of a baseline, of `agent:system=NAME,weights=FOLDER`, or of a policy's text.

    Raises SettingError, and PolicyError for policies and weights that cannot be loaded.
    """
    name, options = parse_policy(text)
    if name == UNIFORM:
        return UniformAgent()
    if name in baselines():
        return _baseline(name, options)
    if name != TRAINED:
        return PolicyAgent(load_policy(name, options))
    return trained_agent(text, options)


def listed(env: str | None) -> list[dict[str, str]]:
    """Return name, environment and rule of the agents that act by a rule in that environment (None: in any), besides policies.

    An empty environment means that the agent acts in all.
    """
    found = [{"agent": UNIFORM, "env": "", "rule": _first_line(UniformAgent)}]
    for name, where in baselines().items():
        if env in (None, where):
            found.append({"agent": name, "env": where, "rule": _first_line(baseline_class(name))})
    return found


def _first_line(kind: type) -> str:
    return (kind.__doc__ or "").partition("\n")[0]


def _baseline(name: str, options: Mapping[str, Any]) -> Agent:
    try:
        made: Agent = baseline_class(name)(**options)
    except (TypeError, ValueError) as error:
        raise SettingError(f"{name} cannot be made: {error}") from error
    return made


def env_options(texts: Sequence[str], workload: str | None) -> dict[str, Any]:
    """Read NAME=VALUE: numbers, true, false, none and words; `slowdown` may have several models, with `/` between.

    `workload` is GENERATOR:key=value,... for the option `traces`. Raises SettingError.
    """
    options: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise SettingError(f"--set {text!r} has no value; give NAME=VALUE")
        options[name] = tuple(filter(None, value.split("/"))) if name == "slowdown" else _value(value)
    if workload is not None:
        like, _, rest = workload.partition(":")
        pairs = [each.partition("=") for each in filter(None, rest.split(","))]
        options["traces"] = from_text(like, {key: value for key, _, value in pairs})
    return options


def _value(text: str) -> object:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return _WORDS.get(text.lower(), text)


def _check(text: str, agent: AgentInEnvironment, env: str, options: Mapping[str, Any]) -> None:
    """Refuse an environment other than that of the agent's training. Rewards and cluster may differ."""
    if agent.env != env:
        raise SettingError(f"{text} was trained in {agent.env}, and the environment is {env}; leave one out")
    for name in agent.needs:
        if options.get(name) != agent.options[name]:
            raise SettingError(
                f"{text} was trained with {name}={agent.options[name]}, and the environment has {options.get(name)}; "
                f"give --set {name}={agent.options[name]}"
            )
