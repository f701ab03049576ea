"""Text for terminals: tables of jobs, preemptions and profiles."""
