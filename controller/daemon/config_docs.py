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

| file | read by | contents |
|---|---|---|
| `/etc/headway/controller.toml` | `headway-controller`, its watchdog, `headway` | the partitions, Slurm, the policy |
| `/etc/headway/policy.env` | `headway-policy.service` | which policy the policy server serves |
| `/etc/headway/agent.toml` | `headway-agent`, on compute nodes; optional | where the controller is, what is measured |

Slurm's own settings are in slurm.conf; `headway-setup slurm --check` shows what yours lacks
(see [operations](operations.md#installing)).

## controller.toml

{controller_example}

`headway-controller check-config` reads the file and reports each wrong key, and each partition that Slurm does not have. An
unknown key is an error.
`systemctl reload headway-controller` applies changes without a restart, except for the keys marked "restart" below. If one
of these has changed, the log says so. If the file has an error, no change is applied.

{controller_keys}

## policy.env

{policy_example}

`HEADWAY_POLICY` is a policy's name, or `NAME:key=value,key=value` for one with options, such as
`tiresias:threshold_gpu_s=6400,round_s=60`. `systemctl restart headway-policy` applies a change; until the server is back,
`fallback_policy` decides. `headway-policy list` names all installed policies. These come with Headway:

{policies}

No policy knows a job's true duration. "Estimated" is the mean of past runs of the same user and job name (`history_runs`,
`history_min_runs`), or else the job's time limit. If `preemption` is `"automatic"`, policies that preempt (`srtf`, `las`,
`tiresias` and others) stop preemptible running jobs; otherwise they only order the queue. About the training of jobs,
policies know what agents measured lately: computing time, bytes and overlap by model, slowdowns of pairs of jobs, and
speeds of NICs. A waiting job is assumed to train the same as the last job with its user and name since the controller
started. Values that are not measured (localities; without agents, all values) are replaced by typical values, or ignored.
Racks and the speeds of their uplinks come from `scontrol show topology` (topology.yaml or topology.conf; LinkSpeed in Gb/s),
which is read at the controller's start; without it, all nodes are in one rack. The links between the GPUs of a node come from
`cluster_file`: Slurm does not show them.

## agent.toml

{agent_example}

Run `headway-agent check` as root on a compute node: it reads the file and says what would be measured there, what would
not, and how to correct that. `systemctl restart headway-agent` applies changes. Jobs train on, and are measured again
within seconds.

{agent_keys}

## The embedded cluster

With `slurm_client = "embedded"` the controller runs an emulation of Slurm inside its own process. This is for trials of Headway
on a machine without Slurm, and for tests. `embedded_cluster` names a file that describes the cluster:

{embedded_example}

Its jobs train nothing. The engine of the [simulator](simulator.md) calculates how long they take; with `slowdown`, jobs
that share links or hosts slow each other down as they do there. `[network]` and the keys `sockets`, `rack` and `speed` of
nodes are those of the simulator's cluster files; the output of `headway cluster` can be pasted here.

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
    """Return the text of docs/configuration.md. Invariant: equal settings classes and examples give equal text."""
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
    """Return a table with one row for each key. Keys in `restart` are marked."""
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
            continue  # a policy of another package
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
    parser.add_argument("--check", action="store_true", help="change nothing; fail when the file is out of date")
    path = ROOT / TARGET
    if not parser.parse_args().check:
        path.write_text(render())
    elif not path.is_file() or path.read_text() != render():
        raise SystemExit(
            f"{TARGET} is out of date: settings or policies have changed. "
            "Run `python -m controller.daemon.config_docs` and commit it."
        )


if __name__ == "__main__":
    main()
