"""What goes into Slurm (plugin, hooks, configuration), and a mini-cluster to try it on."""
