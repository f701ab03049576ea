"""MARL (Zhao and Wu, TNSM 2021): schedulers place workers and parameter servers on the GPU groups of their partitions.
Imports `errors` and `learned/algorithms`.

`graphs` says what the state shows, `convolution` has the layers of the graph networks, `network` a network for each scheduler,
`recipe` the hyper-parameters, and `learning` plays episodes and makes gradient steps. No system is offered before a whole training
has been measured.
"""
