"""The `headway-sim` command. Imports `agents`, `errors`, `reproducing`, `runs` and `traces`; of other packages `policies`."""
