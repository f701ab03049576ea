"""The `headway-sim` command. Imports `agents`, `errors`, `leaderboard`, `reproducing`, `results`, `runs` and `traces`; of other
packages `policies`.
"""
