"""The cluster that is simulated: nodes, GPUs, links, and its TOML file. Imports nothing else of the simulator but its errors."""
