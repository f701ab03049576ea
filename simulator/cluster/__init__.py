"""The cluster that is simulated: nodes, GPUs, links, and its TOML file. Imports `errors`; of other packages `policies`."""
