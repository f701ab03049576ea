"""The policy server with a replaced training: python -m ... POLICY ADDRESS."""

from __future__ import annotations

import asyncio
import sys

from policies.api import load_policy, parse_policy
from policies.learned.dl2.learning import attempt_process
from policies.serving.runtime.logs import set_up_logging
from policies.serving.server import serve

if __name__ == "__main__":
    attempt_process.MODULE = "tests.unit.policies.learned.dl2.learning.fake_training"
    set_up_logging("debug", "console")
    asyncio.run(serve(load_policy(*parse_policy(sys.argv[1])), sys.argv[2]))
