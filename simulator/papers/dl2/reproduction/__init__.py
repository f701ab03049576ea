"""The experiment of `headway-sim reproduce dl2`: settings, contenders, claims, stored runs, the bound, and the search for a rule.
Imports `agents`, `cluster`, `envs`, `errors`, `papers/dl2/progress`, `papers/dl2/rules`, `papers/dl2/servers`, `papers/programs`,
`reproducing`, `results`, `runs`, `slowdown` and `traces`; of other packages `policies`.
"""
