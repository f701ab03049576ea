"""Calls of status.sock in processes of other users, whose uid the kernel reports."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import subprocess
import sys
from pathlib import Path
from typing import Any

import headway_client

USER, OTHER = "daemon", "bin"
"""Users that every machine has."""
AS_USER = """
import datetime, json, os, sys  # gRPC imports datetime late, when this user may not read it any more
from headway_client import Client, HeadwayError
path, uid, requests = json.loads(sys.argv[1])
os.setgroups([]), os.setgid(uid), os.setuid(uid)
client = Client(path, timeout_s=60)
for method, arguments in requests:
    try:
        found = getattr(client, method)(**arguments)
        print(json.dumps(["done", found.to_dict()]))
    except HeadwayError as error:
        print(json.dumps([str(error.reason), str(error)]))
"""


async def call(folder: Path, uid: int | str, *requests: tuple[str, dict[str, Any]]) -> list[list[Any]]:
    """Make those calls on status.sock in a process of that user. Gives "done" and the answer, or reason and text."""
    number = pwd.getpwnam(uid).pw_uid if isinstance(uid, str) else uid
    given = json.dumps([str(folder / "status.sock"), number, requests])
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", AS_USER, given], capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(Path(headway_client.__file__).parents[1])},
    )  # fmt: skip
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]
