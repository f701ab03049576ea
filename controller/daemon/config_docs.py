"""Make docs/configuration.md from the settings classes, or check that it is up to date.

`python -m controller.daemon.config_docs` writes, `python -m controller.daemon.config_docs --check` compares and fails when the
file is stale.
"""

from __future__ import annotations

import argparse
import inspect
import json
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from controller.base.config import RESTART_KEYS, ControllerSettings
from controller.slurm.embedded.description import (
    ClusterDescription,
    Delays,
    GpuLimit,
    JobDescription,
    NodeDescription,
    PartitionDescription,
)
from nodeagent.config import AgentSettings
from policies.api import ENTRY_POINT_GROUP, load_policy

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path("docs/configuration.md")
_EXAMPLES = Path("slurm/plugin/example")
_WORDS = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false", "array": "list"}
_BOUNDS = (
    ("exclusiveMinimum", "more than {}"),
    ("minimum", "{} or more"),
    ("exclusiveMaximum", "less than {}"),
    ("maximum", "at most {}"),
)

_HEAD = """\
<!-- Made by `python -m controller.daemon.config_docs` from the settings classes; do not edit. -->
# Configuration

Headway reads three files. All are small, and the examples below are complete.

| file | read by | says |
|---|---|---|
| `/etc/headway/controller.toml` | `headway-controller`, its watchdog, `headway` | which partitions, which Slurm, who decides |
| `/etc/headway/policy.env` | `headway-policy.service` | which policy the policy server serves |
| `/etc/headway/agent.toml` | `headway-agent`, on compute nodes; optional | where the controller is, what is measured |

What Slurm itself needs is in slurm.conf; `headway-setup slurm --check` shows what yours lacks
(see [operations](operations.md#installing)).

## controller.toml

{controller_example}

`headway-controller check-config` reads the file and says what is wrong with it, key by key; an unknown key is an error.
`systemctl reload headway-controller` takes changes over without a restart, except for the keys marked "restart" below:
the log says so when one of them has changed. A file with a mistake changes nothing.

{controller_keys}

## policy.env

{policy_example}

`HEADWAY_POLICY` is a policy's name, or `NAME:key=value,key=value` for one with options, such as
`tiresias:threshold_gpu_s=6400,round_s=60`. `systemctl restart headway-policy` takes a change over; until the server is back,
`fallback_policy` decides. `headway-policy list` names all policies that are installed; these come with Headway:

{policies}

A job's duration is never known: "estimated" is the mean of past runs of the same user and job name (`history_runs`,
`history_min_runs`), or else the job's time limit. Policies that preempt (`srtf`, `las`, `tiresias` and their kin) stop running
jobs that can come back where `preemption` is `"automatic"`; else they only order the queue. Of what jobs train, policies know
what agents measured lately: computing time, bytes and overlap by model, losses of pairs that met, and speeds of NICs. A job that
waits is taken for what one of the same user and name was last seen to train since the controller started. What is not measured
(localities; without agents all of it) counts with the usual numbers, or not at all. Racks and the speeds of their uplinks are those
of Slurm's topology.conf (`TopologyPlugin=topology/tree`; LinkSpeed in Gb/s), read at the controller's start; else all nodes are
one rack.

## agent.toml

{agent_example}

`headway-agent check`, run as root on a compute node, reads the file and tells what would be measured there, what would not, and
the mend. `systemctl restart headway-agent` takes changes over: jobs train on, and are seen again within seconds.

{agent_keys}

## The embedded cluster

With `slurm_client = "embedded"` the controller runs beside an emulation of Slurm inside its own process: for trying Headway
on a machine without Slurm, and for tests. `embedded_cluster` names a file that describes it:

{embedded_example}

Its jobs train nothing, but they have work to do, and the engine of the [simulator](simulator.md) says how fast: with
`slowdown` jobs that share links or hosts take as long as they do there. `[network]` and the keys `sockets`, `rack` and
`speed` of nodes are those of the simulator's cluster files; what `headway cluster` writes can be pasted here.

{embedded_keys}
"""

_EMBEDDED_EXAMPLE = """\
slowdown = ["max-min"]

[[nodes]]
names = "n[1-8]"
gpus = 8

[network]
nic_gbs = 12.5

[[partitions]]
name = "dl"

[[jobs]]
at_s = 10
duration_s = 120
nodes = 2
gpus = 4
model = "vgg16"
"""

_EMBEDDED = (
    ("At the top of the file", ClusterDescription),
    ("`[[nodes]]`", NodeDescription),
    ("`[[partitions]]`", PartitionDescription),
    ("`[[limits]]`", GpuLimit),
    ("`[delays]`", Delays),
    ("`[[jobs]]`", JobDescription),
)


def render() -> str:
    """The text of docs/configuration.md. Invariant: equal settings classes and examples give equal text."""
    return _HEAD.format(
        controller_example=_fenced("toml", (ROOT / _EXAMPLES / "controller.toml").read_text()),
        controller_keys=_table(ControllerSettings, restart=RESTART_KEYS),
        policy_example=_fenced("sh", (ROOT / _EXAMPLES / "policy.env").read_text()),
        policies=_policies(),
        agent_example=_fenced("toml", (ROOT / _EXAMPLES / "agent.toml").read_text()),
        agent_keys=_table(AgentSettings),
        embedded_example=_fenced("toml", _EMBEDDED_EXAMPLE),
        embedded_keys="\n\n".join(
            f"### {title}\n\n{_sentence(model)}\n\n{_table(model)}" for title, model in _EMBEDDED
        ),
    )


def _fenced(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"


def _sentence(model: type[BaseModel]) -> str:
    return inspect.cleandoc(model.__doc__ or "")


# --- keys of a settings class


def _table(model: type[BaseModel], restart: Iterable[str] = ()) -> str:
    """One row per key. Keys in `restart` are marked so."""
    rows = _rows(model.model_json_schema(), frozenset(restart))
    return "\n".join(("| key | value | default | meaning |", "|---|---|---|---|", *rows))


def _rows(schema: Mapping[str, Any], restart: frozenset[str]) -> Iterator[str]:
    required = set(schema.get("required", ()))
    for key, found in schema["properties"].items():
        default = "required" if key in required else _default(found, schema.get("$defs", {}))
        meaning = " ".join(str(found.get("description", "")).split())
        mark = " *(restart)*" if key in restart else ""
        yield f"| `{key}` | {_value(found)} | {default} | {_cell(meaning)}{mark} |"


def _value(found: Mapping[str, Any]) -> str:
    """Return the text for the values that a key may have."""
    if "anyOf" in found:
        return ", or ".join(_value(choice) for choice in found["anyOf"] if choice.get("type") != "null")
    if "enum" in found:
        return ", ".join(f"`{json.dumps(choice)}`" for choice in found["enum"])
    if "$ref" in found or found.get("type") == "object":
        return "table"
    words = "path" if found.get("format") == "path" else _WORDS[found["type"]]
    if found["type"] == "array":
        items = found["items"]
        return "list of tables" if "$ref" in items else f"list of {_value(items)}"
    bounds = [text.format(_number(found[key])) for key, text in _BOUNDS if key in found]
    return f"{words}, {', '.join(bounds)}" if bounds else words


def _default(found: Mapping[str, Any], tables: Mapping[str, Any]) -> str:
    value = found.get("default")
    if value is None or value in ([], {}):
        return "none"
    if isinstance(value, dict):
        return "its defaults"
    if isinstance(value, list) and "$ref" not in found["items"]:
        return f"`{json.dumps(value)}`"
    if isinstance(value, list):
        table = tables[found["items"]["$ref"].rpartition("/")[2]]
        texts = [f"{key} = {json.dumps(item[key])}" for item in value for key in table["required"]]
        return f"one, with `{', '.join(texts)}`"
    return f"`{_number(value)}`" if isinstance(value, float) else f"`{json.dumps(value)}`"


def _number(value: float) -> str:
    return f"{value:.12g}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


# --- policies


def _policies() -> str:
    rows = []
    for entry in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda found: found.name):
        if not entry.value.startswith("policies."):
            continue  # somebody's own, installed beside ours
        spec, made = load_policy(entry.name).spec, entry.load()
        options = [f"`{name}={_option(found.default)}`" for name, found in inspect.signature(made).parameters.items()]
        order = inspect.cleandoc(made.__doc__ or "").split("\n", maxsplit=1)[0]
        rows.append(f"| `{entry.name}` | {_cell(order)} | {', '.join(options) or 'none'} | {_cell(spec.source)} |")
    return "\n".join(("| policy | rule | options, with defaults | source |", "|---|---|---|---|", *rows))


def _option(default: object) -> str:
    return _number(default) if isinstance(default, float) else str(default)


def main() -> None:
    """Command line: write, or with --check only compare."""
    parser = argparse.ArgumentParser(prog="python -m controller.daemon.config_docs", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail when the file is stale")
    path = ROOT / TARGET
    if not parser.parse_args().check:
        path.write_text(render())
    elif not path.is_file() or path.read_text() != render():
        raise SystemExit(
            f"{TARGET} does not belong to the settings classes; run `python -m controller.daemon.config_docs` and commit"
        )


if __name__ == "__main__":
    main()
