"""headway-rl: learned values of jobs, and a search for the set of jobs with the highest total value under contention.
Imports `api`, `documents`, `errors`, `heuristics`, `learned/algorithms`, `learned/shadow`, `learned/training`, `learned/weights`,
`model`, `options`, `ordering`, `placement`, `selection` and `speeds`.

It follows no paper. `features` are the inputs, `network` gives the values of jobs, `search` decides which jobs run where; `policy`
serves it, `recipe` trains it, and `system` registers it for `headway-policy train`.
"""
