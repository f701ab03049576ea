"""The `headway-policy` command. Imports all other folders, inside the commands."""
