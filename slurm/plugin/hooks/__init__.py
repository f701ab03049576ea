"""Scripts that slurmctld and slurmd run: PrologSlurmctld and EpilogSlurmctld, TaskProlog."""
