"""DL2 (Peng et al., TPDS 2021): the environment of elastic jobs with workers and parameter servers.
Imports `cluster`, `engine`, `envs`, `errors`, `kernel`, `slowdown` and `traces`; of other packages `policies`.
"""
