"""Cluster states, decisions and profiles as messages of protos/headway/v1, in both directions.
Imports `api`, `decision_check`, `documents`, `errors`, `model` and `state`; of other packages `protos`.
"""
