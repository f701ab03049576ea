"""The placement and the start of jobs, jobs outside of Headway, mistakes of operators, and the watchdog."""
