"""The targets, by the part that reads: controller, Slurm's texts, observation, agent, policies, checkpoints, weights, simulator."""

from tests.fuzz.target import Target
from tests.fuzz.targets.agent import AGENT
from tests.fuzz.targets.agent_stream import AGENT_STREAM
from tests.fuzz.targets.checkpoints import CHECKPOINTS
from tests.fuzz.targets.client import CLIENT
from tests.fuzz.targets.controller import CONTROLLER
from tests.fuzz.targets.learned import LEARNED
from tests.fuzz.targets.observation import OBSERVATION
from tests.fuzz.targets.policy import POLICY
from tests.fuzz.targets.settings import SETTINGS
from tests.fuzz.targets.simulator import SIMULATOR
from tests.fuzz.targets.slurm_files import SLURM_FILES
from tests.fuzz.targets.slurm_texts import SLURM_TEXTS

TARGETS: dict[str, Target] = {
    target.name: target
    for group in (
        *(CONTROLLER, SETTINGS, SLURM_TEXTS, SLURM_FILES, OBSERVATION, AGENT, AGENT_STREAM),
        *(POLICY, CHECKPOINTS, LEARNED, SIMULATOR, CLIENT),
    )
    for target in group
}
"""Name -> target."""
