"""The `headway-sim` command. Imports `agents`, `errors`, `leaderboard`, `reproducing`, `results`, `runs`, `stress` and `traces`; of
other packages `policies`.
"""
