"""Several policies on several whole traces, clusters, loads and qualities of estimates, as one table and one page.
Imports `cluster`, `engine`, `errors`, `kernel`, `results`, `runs`, `traces` and `training/data_sets`; of other packages `policies`.
"""
