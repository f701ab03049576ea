"""RL-TAPS (Ryu et al., CASCON 2020): an agent gives every GPU to one of the jobs in ten slots, anew in every step.

`image_columns` says what the cells of an image mean.
"""
