"""The experiment of `headway-sim reproduce rl-taps`: settings, contenders, claims, and the learning curves of stored trainings.
Imports `agents`, `cluster`, `envs`, `papers/programs`, `papers/rl_taps/bound`, `papers/rl_taps/jobs`, `papers/rl_taps/options`,
`reproducing`, `runs`, `slowdown` and `traces`; of other packages `policies`.
"""
