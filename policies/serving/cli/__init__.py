"""The `headway-policy` command."""
