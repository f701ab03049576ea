"""Headway on a mini-cluster.
Imports `errors`, `minicluster`, `processes` and `setup`; of other packages `controller` and `policies`.

`Services` is Headway on a cluster that stays up. It is found again by the name of the cluster. `Installation` ends with the process
that has made it, for the demonstration, the benchmarks and the tests:

with Installation.prepare("demo") as headway, MiniCluster(headway.cluster_spec(nodes=4)) as cluster:
    headway.configure(cluster)
    headway.start_policy("srtf")
    headway.start_controller()

With `prepare("demo", with_agents=True)` the controller waits for node agents, and `headway.agents.start_all(cluster)` starts
one in every node, as the init of that machine would. With `with_spank=True` the cluster's sbatch, salloc and srun have the
options of Headway.
"""
