"""Mutated input for every parser of what others write: files, frames, messages, texts of Slurm, and the servers that read them.

`python -m tests.fuzz --runs 1000000 --seed 1` divides the runs among the targets; `--list` names them. A target has genuine
inputs, made by Headway's own encoders or recorded from real programs, and a function that reads one. `mutate` changes an input.
`oracle` judges one reading: the result is a value or a documented error, CPU time and memory are bounded, and the file is left as
it was. `servers` sends mutated frames to real sockets. The seed determines everything. An input that shows a fault is kept in
`kept/`, and is a test from then on.
"""
