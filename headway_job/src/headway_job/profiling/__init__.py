"""Profile windows: some steps are recorded and divided into compute and communication. Imports nothing of Headway."""
