"""CASSINI's interleaving: when the jobs that share links should send. Imports nothing of Headway."""
