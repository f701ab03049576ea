"""The simulator as the backend of trainings of learned policies, and its data sets.

Imports `agents`, `cluster`, `engine`, `envs`, `errors`, `results`, `runs`, `slowdown` and `traces`; of other packages
`policies`.
"""
