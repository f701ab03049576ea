"""A spec is checked when it is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slurm.errors import SpecError
from slurm.minicluster.spec import ClusterSpec, PartitionSpec, parse_rate


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"name": "Upper"}, "name"),
        ({"name": "a/b"}, "name"),
        ({"nodes": 0}, "nodes"),
        ({"nodes": 201}, "nodes"),
        ({"gpus": -1}, "gpus"),
        ({"rate": "fast"}, "rate"),
        ({"rate": "1bit"}, "rate"),
        ({"cgroup": "v3"}, "cgroup"),
        ({"directory": Path("/srv/two words")}, "directory"),
        ({"partitions": ()}, "partitions"),
        ({"nodes": 2, "partitions": (PartitionSpec("p", nodes=("n3",)),)}, "partitions"),
        ({"features": {"n9": ("fast",)}}, "features"),
        ({"features": {"n1": ("two words",)}}, "features"),
        ({"job_submit_lua": Path("/no/such/file.lua")}, "job_submit_lua"),
    ],
)
def test_a_spec_that_cannot_be_built_is_refused_by_field(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(SpecError, match=rf"{named}.*must be"):
        ClusterSpec(**fields)


@pytest.mark.parametrize(("text", "bits"), [("200mbit", 200_000_000), ("1.5gbit", 1_500_000_000), ("64kbit", 64_000)])
def test_rates_are_read_as_tc_reads_them(text: str, bits: int) -> None:
    assert parse_rate(text) == bits
