"""MARL (Zhao and Wu, TNSM 2021): schedulers place workers and parameter servers on the GPU groups of their partitions.
Imports `errors`, `learned/algorithms`, `learned/training` and `learned/weights`.

`graphs` says what the state shows, `convolution` has the layers of the graph networks, `network` a network for each scheduler,
`recipe` the hyper-parameters, `playing` plays episodes, `learning` makes gradient steps, and `system` joins them into a whole
training. There is no policy: the agent acts in its environment only.
"""
