"""Every await of a scripted run is cut, one in each run: by a cancellation, or by an error thrown at that point.

`python -m tests.cancellation` cuts all of them, and pytest some. `points` counts awaits and cuts one; `controller_run` is the
controller on the emulated Slurm in virtual time; `services_run` the services around it, an agent and a policy server over gRPC.
`commands_run` has every verb of Slurm's clients, `pyslurm_run` the readings through a child process, `watchdog_run` the watchdog.
"""
