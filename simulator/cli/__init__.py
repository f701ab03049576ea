"""The `headway-sim` command."""
