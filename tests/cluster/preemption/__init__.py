"""Jobs that are moved, resized or preempted, and that continue from their checkpoints."""
