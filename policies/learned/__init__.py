"""Learned policies: shared parts, and a folder for each system.
Imports `api`, `documents`, `errors`, `heuristics`, `model`, `options`, `ordering`, `placement`, `selection`, `speeds` and
`state`.

A recipe reads like its paper. It is composed of these parts, each usable without the others:

- `algorithms` has PPO, actor-critic (fresh or with replay), REINFORCE, deep Q-learning and imitation, each over any
  `algorithms.distribution`; evolution and the cross-entropy method compare whole runs;
- `algorithms.rollout.Collector` steps environments and fills arrays (steps x environments), with masks and ends of episodes;
- `algorithms.advantage` turns rewards into advantages, `algorithms.replay` keeps rows for later;
- `training.run` is a training in its folder: checkpoints, figures, and the best weights so far;
- `weights` keeps weights with their model cards.

Torch is imported only when a learned policy is trained or served. Nothing here imports the simulator: a recipe gets its
environments as an argument.
"""
