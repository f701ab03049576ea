"""The node agent: measures jobs where they run."""
