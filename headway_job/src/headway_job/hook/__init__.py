"""The hook inside every PyTorch job: it counts steps, and talks to the node's agent. Imports `job_log`, `profiling`."""
