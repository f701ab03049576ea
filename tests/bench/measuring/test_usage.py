"""Readings of CPU time and memory of processes."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.bench.measuring.usage import cpu_time, memory_mib

_BURN = "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass"


def test_cpu_of_a_process_and_of_its_children_are_separate() -> None:
    before = cpu_time(os.getpid())
    subprocess.run([sys.executable, "-c", _BURN], check=True, timeout=60)
    after = cpu_time(os.getpid())
    assert after.children_s - before.children_s >= 0.15
    assert after.own_s - before.own_s < after.children_s - before.children_s


def test_memory_now_is_no_more_than_at_its_peak() -> None:
    now, peak = memory_mib(os.getpid())
    assert 5 < now <= peak
