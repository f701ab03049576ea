"""MARL's schedulers on a `ClusterState`: the division of the nodes, graphs, observations, and one batch of decisions.
Imports `learned/marl/edges`, `learned/marl/graphs`, `learned/marl/network`, `learned/marl/recipe`, `model`, `placement`, `speeds`
and `state`.

`schedulers` divides the nodes, `cluster_graphs` has the graphs of these parts, `job_columns` the jobs as the agents know them,
`room` says which nodes a worker can have, `occupancy` counts tasks on groups and links, `views` makes the observations, `networks`
the vectors and actions, and `batch` places jobs with all of them.
"""
