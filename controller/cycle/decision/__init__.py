"""From a snapshot to a plan: the policy's decision, its checks, and the preemptions it asks for. Imports `preempt`, `observe`, `base`."""
