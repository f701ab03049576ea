"""Jobs that are moved, resized or preempted, and that go on from their checkpoints."""
