"""Checkpoints in an S3-compatible store: moto's server in its own process, and s3fs in the job.

Both are installed on demand below build/ (130 MB; half a minute of computing), as botocore wants an older dateutil than the rest.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.headway_job.checkpoints.conftest import ROOT, ForkServer
from tests.unit.headway_job.checkpoints.state.test_sharded import SAVE, STEPS, assert_same, trained

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

WANTED = Path(__file__).with_name("s3-requirements.txt")
SECRET = "hunter22hunter22"
SIGNED = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=me/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
}
"""moto does not check it."""


@pytest.fixture(scope="session")
def packages() -> Path:
    folder = ROOT / "build" / f"s3-{hashlib.sha256(WANTED.read_bytes() + sys.version.encode()).hexdigest()[:12]}"
    if not folder.exists():
        partial = folder.with_name(f"{folder.name}.{os.getpid()}")
        install = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--target",
            str(partial),
            "-r",
            str(WANTED),
        ]
        done = subprocess.run(install, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"s3fs and moto could not be installed: {done.stderr[-300:]}")
        partial.rename(folder)
    return folder


class S3:
    """The server and the settings that a job has for it."""

    def __init__(self, packages: Path, port: int, bucket: str) -> None:
        self.port = port
        self.bucket = bucket
        keys = {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_MAX_ATTEMPTS": "1"}
        self.job = {"kind": "s3", "port": port, "bucket": bucket, "packages": packages, "keys": keys}
        self.url = f"s3://{bucket}/run"

    def objects(self) -> list[str]:
        """Return the keys in the bucket, read by another client."""
        return sorted(re.findall(r"<Key>run/([^<]*)</Key>", self.ask("GET", f"/{self.bucket}?list-type=2")))

    def complete(self) -> list[int]:
        """Return the steps of the checkpoints in the bucket."""
        return [int(name.split("-")[1]) for name in self.objects() if re.match(r"step-.*/manifest\.json", name)]

    def ask(self, method: str, path: str) -> str:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method, headers=SIGNED)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return str(answer.read().decode())


@pytest.fixture(scope="session")
def server(packages: Path) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        env={**os.environ, "PYTHONPATH": str(packages)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline_s = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline_s:
        with socket.socket() as near:
            if not near.connect_ex(("127.0.0.1", port)):
                break
        time.sleep(0.1)
    yield port
    process.kill()
    process.wait()


@pytest.fixture
def s3(packages: Path, server: int, request: pytest.FixtureRequest) -> S3:
    bucket = "b" + hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:16]
    found = S3(packages, server, bucket)
    found.ask("PUT", f"/{bucket}")
    return found


def run(fork_server: ForkServer, s3: S3, name: str, world: int = 2, **args: Any) -> Any:
    ended = fork_server.run(f"stores.programs.{name}", world, **s3.job, **args)
    assert SECRET not in "".join(ended.logs)
    return ended


def test_a_run_goes_on_from_s3(fork_server: ForkServer, s3: S3, tmp_path: Path) -> None:
    whole = fork_server.run("train", 2, folder=tmp_path / "whole", steps=12)

    first = run(fork_server, s3, "train", url=s3.url, steps=12, end_at=10, options={"every_steps": 3})
    second = run(fork_server, s3, "train", url=s3.url, steps=12)

    assert first.ends == second.ends == [0, 0], second.logs
    assert second.reported("start") == first.reported("saved") == 9
    assert s3.complete() == [6, 9]
    for rank in (0, 1):
        assert sorted(second.losses(rank)) == [9, 10, 11]
        for step, loss in second.losses(rank).items():
            assert loss == pytest.approx(whole.losses(rank)[step], abs=1e-6)


def test_shards_in_s3_are_restored_by_another_number_of_ranks(fork_server: ForkServer, s3: S3, tmp_path: Path) -> None:
    whole = trained(fork_server, "fsdp2", 2, tmp_path / "whole")

    first = run(fork_server, s3, "train_sharded", url=s3.url, training={"steps": 8, "options": SAVE})
    second = run(fork_server, s3, "train_sharded", 3, url=s3.url, training={"steps": STEPS})

    assert second.ends == [0, 0, 0], second.logs
    assert second.reported("start") == 6
    assert_same(whole, [first, second])


@pytest.mark.parametrize("count", [0, 2500, 6000])
def test_a_lost_connection_to_the_store_fails_only_that_save(fork_server: ForkServer, s3: S3, count: int) -> None:
    ended = run(fork_server, s3, "cut_in_a_save", bytes=count)

    assert ended.ends == [0, 0], ended.logs
    for rank in (0, 1):
        assert [ended.reported(when, rank) for when in ("before", "cut", "after")] == [2, 2, 6]
    assert "rank 1 could not write" in ended.logs[0]
    assert s3.complete() == [2, 6]
    assert len(s3.objects()) == 6


@pytest.mark.parametrize("count", [4_000, 20_000, 23_000, 25_500, 27_500, 90_000])
def test_a_manifest_is_complete_or_missing(fork_server: ForkServer, s3: S3, count: int) -> None:
    """One rank sends its file and then the manifest. If the connection is cut before the manifest, there is no checkpoint."""
    ended = run(fork_server, s3, "cut_in_a_save", 1, bytes=count)

    assert ended.ends == [0], ended.logs
    assert [ended.reported("before"), ended.reported("after")] == [2, 6]
    assert ended.reported("cut") in ({2} if count < 20_000 else {4} if count > 40_000 else {2, 4})
    complete = s3.complete()
    assert complete[-1] == 6
    assert (4 in complete) or ended.reported("cut") == 2
    for name in s3.objects():
        if name.endswith("manifest.json"):
            files = json.loads(s3.ask("GET", f"/{s3.bucket}/run/{name}"))["files"]
            assert set(files) == {"rank-0.safetensors"}
            assert name.replace("manifest.json", "rank-0.safetensors") in s3.objects()


def test_a_store_that_stops_answering_does_not_stop_the_training(fork_server: ForkServer, s3: S3) -> None:
    ended = run(fork_server, s3, "dead_in_a_save", 1)

    assert ended.ends == [0], ended.logs
    assert ended.reported("steps") > 10
    assert ended.reported("silent") == 2
    assert "no answer for 0.5 s" in ended.logs[0]
    assert ended.reported("after") == ended.reported("last")


def test_a_dead_store_does_not_delay_the_end_of_the_program(fork_server: ForkServer, s3: S3) -> None:
    ended = run(fork_server, s3, "dead_at_the_end", most_s=600)

    assert ended.ends == [0, 0], ended.logs
    assert ended.reported("closed") == 2


@pytest.mark.parametrize("how", ["silent", "cut"])
def test_a_run_does_not_begin_at_step_0_while_the_store_is_down(fork_server: ForkServer, s3: S3, how: str) -> None:
    ended = run(fork_server, s3, "away_at_the_start", how=how)

    assert ended.ends == [1, 1]
    assert "cannot be listed" in ended.logs[0]


def test_no_bucket_is_made(fork_server: ForkServer, s3: S3) -> None:
    ended = run(fork_server, s3, "train", 1, url=f"s3://{s3.bucket}-other/run", steps=3, options={"every_steps": 3})

    assert ended.ends == [0]
    assert ended.reported("saved") is None
    assert "bucket does not exist" in ended.logs[0]
    with pytest.raises(urllib.error.HTTPError):
        s3.ask("GET", f"/{s3.bucket}-other?list-type=2")
