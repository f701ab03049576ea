"""Headway on a mini-cluster, for the demonstration, the benchmarks and the tests.
Imports `minicluster`, `processes` and `setup`; of other packages `controller`.

with Installation.prepare("demo") as headway, MiniCluster(headway.cluster_spec(nodes=4)) as cluster:
    headway.configure(cluster)
    headway.start_policy("srtf")
    headway.start_controller()

With `prepare("demo", with_agents=True)` the controller waits for node agents, and `headway.agents.start_all(cluster)` starts
one in every node, as the init of that machine would. With `with_spank=True` the cluster's sbatch, salloc and srun have the
options of Headway.
"""
