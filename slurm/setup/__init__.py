"""`headway-setup`: what a Slurm installation needs for Headway, shown as a diff and written when told to. Imports no
mini-cluster.
"""
