"""The `headway` command: `app.py` lists its commands. Imports what it shows; nothing imports it."""
