"""From an observation to a plan: the decision, its checks, and its preemptions. Imports `preempt`, `observe`, `base`."""
