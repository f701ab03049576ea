"""The `headway` command. Imports what it shows; nothing imports it."""
