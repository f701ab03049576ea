"""The command-line client: runs scontrol and scancel, and parses what they print. Imports the protocol and the verbs of
`controller.slurm`.
"""
