"""Table III of MARL: errors of the interference model and of other fits on measured slowdowns, and the measurement of these.
Imports `papers/programs` and `slowdown`; of other packages `policies`.
"""
