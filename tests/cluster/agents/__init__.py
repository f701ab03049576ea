"""Node agents and the training jobs that they measure."""
