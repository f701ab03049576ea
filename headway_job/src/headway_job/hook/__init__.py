"""The hook inside every PyTorch job: it counts steps, and talks to the node's agent. Imports `profiling`."""
