"""Learned policies: what they share, and a folder for each system.

A recipe is one file that reads like its paper. It is put together from these pieces, each usable without the others:

- `rollout.Collector` steps environments and fills arrays (steps x environments), masks and ends of episodes included;
- `advantage` turns rewards into returns and advantages, `replay` keeps rows for later;
- `run.TrainingRun` is the folder of a training: what to go on from after a kill, figures, and the best weights so far;
- `weights` and `card` keep weights with what is known of them.

Nothing here imports torch before somebody trains or serves a learned policy, and nothing here knows the simulator: a recipe gets
its environments as an argument.
"""
