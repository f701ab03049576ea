"""headway-rl: learned values of jobs, and a search for the set of jobs that is worth most together, contention deducted.
Imports `api`, `errors`, `heuristics`, `learned/training`, `learned/weights`, `model`, `options`, `ordering`, `placement`,
`selection` and `speeds`.

It follows no paper. `features` are the inputs, `network` gives the values of jobs, `search` decides which jobs run where; `policy`
serves it, `recipe` trains it, and `system` registers it for `headway-policy train`.
"""
