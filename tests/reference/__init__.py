"""The reference simulator: tiny, slow and obvious; what the fast simulator is compared with.

It imports the standard library only and shares no code with Headway. No state is updated as time goes by except what
jobs hold and what they have had: free GPUs, queues, layouts and the next event are worked out from scratch each time they
are asked for. Time is exact (`fractions.Fraction`, seconds). Good for a few hundred jobs.
"""

from tests.reference.loop import simulate
from tests.reference.model import Job, Result
from tests.reference.policies import POLICIES

__all__ = ["POLICIES", "Job", "Result", "simulate"]
