"""The slowdown models by their names on the command line: `--slowdown NAME[:key=value,...]`, several times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from simulator.cluster.topology import Inside, Topology
from simulator.errors import SlowdownError
from simulator.slowdown.api import SlowdownModel
from simulator.slowdown.links.link_sharing import LinkSharing
from simulator.slowdown.links.max_min import MaxMin
from simulator.slowdown.links.parameter_server import ParameterServer
from simulator.slowdown.neighbours.interference import HostInterference
from simulator.slowdown.neighbours.pair_table import PairTable
from simulator.slowdown.placement.gpu_links import GpuLinks
from simulator.slowdown.placement.locality import Locality
from simulator.slowdown.placement.node_speed import NodeSpeed
from simulator.slowdown.placement.scaling import Scaling
from simulator.slowdown.profiles.model_profiles import ModelProfiles

NONE = "none"
"""The name that switches all models off."""
NODE_SPEED = "node-speed"
Value = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a model."""

    parse: Callable[[str], Value]
    says: str
    """Description of its values, for messages."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One model."""

    says: str
    make: Callable[..., SlowdownModel]
    """Makes the model from a topology, profiles, and the options."""
    options: Mapping[str, Option] = field(default_factory=dict)


def _one_of(*values: str) -> Option:
    def parse(text: str) -> str:
        if text not in values:
            raise ValueError
        return text

    return Option(parse, " or ".join(values))


def _number(least: float) -> Option:
    def parse(text: str) -> float:
        value = float(text)
        if not least < value < float("inf"):
            raise ValueError
        return value

    return Option(parse, f"a number above {least:g}")


def _yes() -> Option:
    def parse(text: str) -> bool:
        return {"yes": True, "no": False}[text]

    return Option(parse, "yes or no")


MODELS: dict[str, Entry] = {
    "locality": Entry("slower when spread over sockets, nodes and racks", Locality),
    "max-min": Entry(
        "links are shared max-min fairly",
        MaxMin,
        {"reference": _one_of("best", "alone"), "sharing": _one_of("always", "duty", "phases", "shifts")},
    ),
    "link-sharing": Entry(
        "links are shared by the number of jobs on them (RL-TAPS)", LinkSharing, {"reference": _one_of("best", "alone")}
    ),
    "pair-table": Entry("the worst measured ratio of two jobs that share a node", PairTable, {"single": _yes()}),
    "interference": Entry("cores and PCIe of a host are shared (MARL)", HostInterference, {"cores": _number(0)}),
    "parameter-server": Entry("workers and servers that are spread (DL2)", ParameterServer, {"ratio": _number(0)}),
    "gpu-links": Entry("links between its GPUs inside a node: NVLink, PCIe, between sockets", GpuLinks),
    "scaling": Entry("elastic jobs at another size than they requested", Scaling),
    NODE_SPEED: Entry("nodes of different speed", NodeSpeed, {"sensitivity": _one_of("all", "profile")}),
}
"""Every model has the option `default=MODEL` too: the profile of models that have none."""


def model_of(text: str) -> str:
    """Return the name of the model of `NAME[:key=value,...]`."""
    return text.strip().partition(":")[0]


def none_of(texts: Sequence[object]) -> bool:
    """Return whether these are no models: no text, or `none`."""
    return all(text == NONE for text in texts)


def with_node_speed(texts: Sequence[str], topology: Topology) -> tuple[str, ...]:
    """Return these models, and `node-speed` where nodes differ in speed, unless it is among them or `none` excludes all."""
    names = {model_of(text) for text in texts}
    return (*texts,) if names & {NONE, NODE_SPEED} or not topology.speed else (*texts, NODE_SPEED)


def unread_keys(texts: Sequence[str], topology: Topology) -> list[str]:
    """Return the keys of a cluster file about the inside of nodes that the cluster has, and that none of these models reads."""
    names, inside, usual = {model_of(text) for text in texts}, topology.inside, Inside()
    if NONE in names or "gpu-links" in names:
        return []
    found = {
        "switches": bool(topology.switches),
        "nvlink": bool(topology.nvlink),
        "nvlink_gbs": inside.nvlink_gbs != usual.nvlink_gbs,
        "bridge_gbs": inside.bridge_gbs is not None,
    }
    if "link-sharing" not in names:
        found |= {name: getattr(inside, name) != getattr(usual, name) for name in ("pcie_gbs", "socket_gbs")}
    return [name for name, there in found.items() if there]


def build(texts: Sequence[str], *, topology: Topology, profiles: ModelProfiles) -> list[SlowdownModel]:
    """Make the models of these texts, in their order. Raises SlowdownError for unknown names and options."""
    asked = [_parsed(text) for text in texts if text.strip()]
    names = [name for name, _ in asked]
    if NONE in names:
        if len(names) > 1:
            raise SlowdownError("none cannot be combined with other slowdown models", mend="leave one or the other out")
        return []
    for name in names:
        if names.count(name) > 1:
            raise SlowdownError(f"the slowdown model {name} is given twice", mend="give it once")
    return [_made(name, options, names, topology, profiles) for name, options in asked]


def _made(
    name: str, options: dict[str, Value], names: Sequence[str], topology: Topology, profiles: ModelProfiles
) -> SlowdownModel:
    default = options.pop("default", None)
    if default is not None:
        profiles = replace(profiles, default=str(default))
    if "reference" in MODELS[name].options:
        options.setdefault("reference", "alone" if "locality" in names else "best")
    return MODELS[name].make(topology, profiles, **options)


def _parsed(text: str) -> tuple[str, dict[str, Value]]:
    """Return the name and the options of `NAME[:key=value,...]`."""
    name, _, rest = text.strip().partition(":")
    if name == NONE and not rest:
        return NONE, {}
    if name not in MODELS:
        raise SlowdownError(
            f"there is no slowdown model {name!r}", mend=f"take {NONE}, or some of {', '.join(sorted(MODELS))}"
        )
    options: dict[str, Value] = {}
    known = {**MODELS[name].options, "default": Option(str, "the name of a profile")}
    for item in rest.split(",") if rest else []:
        key, equals, value = item.partition("=")
        if key not in known or not equals:
            raise SlowdownError(
                f"the slowdown model {name} has no option {item!r}", mend=f"its options are {', '.join(sorted(known))}"
            )
        try:
            options[key] = known[key].parse(value)
        except (ValueError, KeyError):
            raise SlowdownError(
                f"{value!r} is not a value for {key} of the slowdown model {name}", mend=f"give {known[key].says}"
            ) from None
    return name, options
