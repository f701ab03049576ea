"""RL-TAPS (Ryu et al., CASCON 2020): an agent gives every GPU to one of the jobs in ten slots, anew in every step.
Imports `errors`, `learned/algorithms`, `learned/training` and `learned/weights`.

`image_columns` says what the cells of an image mean, `cluster` has the paper's cluster, `network` the hidden layer and its softmax
heads, `episodes` plays the episodes of one gradient step, `recipe` has the hyper-parameters, and `system` joins them into a whole
training.
"""
