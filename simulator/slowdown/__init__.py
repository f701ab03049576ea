"""Slowdown models: small models whose factors are multiplied.
Imports `cluster` and `errors`; of other packages `policies`.

`registry` builds the models by name; `placement`, `neighbours` and `links` have one model a file, each with its equation,
its source and its fit.
"""
