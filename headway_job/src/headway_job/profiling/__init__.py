"""Profile windows: some steps are recorded and divided into compute and communication. Imports no other folder."""
