"""headway_job, which runs inside users' programs."""
