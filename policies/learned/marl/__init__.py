"""MARL (Zhao and Wu, TNSM 2021): schedulers place workers and parameter servers on the GPU groups of their partitions.
Imports `api`, `errors`, `learned/algorithms`, `learned/guard`, `learned/shadow`, `learned/training`, `learned/weights`, `model`,
`options`, `ordering`, `placement`, `selection`, `speeds` and `state`.

`graphs` and `edges` say what the state shows, `convolution` has the layers of the graph networks, `network` a network for each
scheduler, `recipe` the hyper-parameters, `playing` plays episodes, `learning` makes gradient steps, and `system` joins them into a
whole training. `policy` serves the agents on clusters, with what `serving` makes of a cluster's state, and
`spread_guard` keeps jobs together there.
"""
