"""Gymnasium finds the environments without an import of ours: an entry point would do nothing since Gymnasium 1.0."""

from __future__ import annotations

import subprocess
import sys

_MAKE = """
import gymnasium
env = gymnasium.make("simulator.envs:headway/Contention-v0", branch="B")
envs = gymnasium.make_vec("simulator.envs:headway/Contention-v0", 2, vectorization_mode="vector_entry_point", branch="B")
print(env.spec.id, envs.num_envs)
envs.close()
env.close()
"""


def test_the_module_before_the_colon_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", _MAKE], capture_output=True, text=True, timeout=100, check=True)

    assert done.stdout == "headway/Contention-v0 2\n"
