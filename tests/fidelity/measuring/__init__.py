"""Real jobs on the mini-cluster: those of the mix, each kind alone, and replays of a trace."""
