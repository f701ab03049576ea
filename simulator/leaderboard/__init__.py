"""Several policies on several whole traces, clusters, loads and qualities of estimates, as one table and one page.
Imports `cluster`, `engine`, `errors`, `results`, `runs`, `slowdown`, `traces` and `training`; of other packages `policies`.
"""
