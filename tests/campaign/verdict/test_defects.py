"""Tests of defects fail when the defect is put back, and pass without it.

docs/faults.md lists the defects and their tests.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from controller.observe import resize
from controller.profiles.store import ProfileStoreError
from tests.campaign.verdict.defects import agents, holds, journal, placing
from tests.campaign.verdict.defects.patches import patched
from tests.unit.controller.agents.reports import test_storage
from tests.unit.controller.cycle import test_cycle_burst, test_cycle_held, test_cycle_journal, test_cycle_refused
from tests.unit.controller.cycle.decision import test_decider_swap
from tests.unit.controller.daemon.watchdog import test_watchdog
from tests.unit.controller.observe import test_resize
from tests.unit.controller.preempt import test_preemptibility
from tests.unit.controller.slurm import test_user_holds
from tests.unit.controller.slurm.embedded import test_faults
from tests.unit.controller.state import test_journal_damage
from tests.unit.controller.worlds.world import World
from tests.unit.policies.serving.runtime.tasks import test_supervise
