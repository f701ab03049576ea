"""The experiment of `headway-sim reproduce marl`: settings, contenders, claims, and stored runs.
Imports `agents`, `envs`, `errors`, `papers/marl/bound`, `papers/marl/env`, `papers/marl/episodes`, `papers/marl/interference_fit`,
`papers/marl/options`, `papers/marl/rules`, `papers/marl/state`, `papers/marl/world`, `papers/programs`, `reproducing`, `runs`,
`slowdown` and `traces`; of other packages `policies`.
"""
