"""The demonstration: a dozen training jobs through Headway, and the same jobs through Slurm's own backfill beside it."""
