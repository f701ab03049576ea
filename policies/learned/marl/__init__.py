"""MARL (Zhao and Wu, TNSM 2021): schedulers place workers and parameter servers on the GPU groups of their partitions.
Imports `errors` and `learned/algorithms`.

`graphs` says what the state shows, `convolution` has the layers of the graph networks, `network` a network for each scheduler,
`recipe` the hyper-parameters, and `learning` plays episodes and makes gradient steps.

These are parts for your own program. The environment `headway/Marl-v0` is offered without a trained agent: no training with these
parts has been carried out and measured, so there is no system for `headway-policy train`, no weights, and no policy.
"""
