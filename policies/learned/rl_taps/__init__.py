"""RL-TAPS (Ryu et al., CASCON 2020): an agent gives every GPU to one of the jobs in ten slots, anew in every step.
Imports `api`, `errors`, `learned/algorithms`, `learned/resizing_guard`, `learned/shadow`, `learned/training`, `learned/weights`,
`model`, `options`, `ordering`, `placement` and `state`.

`image_columns` says what the cells of an image mean, `cluster` has the paper's cluster, `network` the hidden layer and its softmax
heads, `blocks_rule` a rule that `imitating` teaches the network, `episodes` plays the episodes of one gradient step, `recipe` has
the hyper-parameters, and `system` joins them into a whole training. `policy` serves the agent on clusters, and `cluster_image`
makes the images for it.
"""
