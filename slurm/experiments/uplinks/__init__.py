"""Policies compared on racks with narrow uplinks, with emulated jobs that slow each other down, beside the simulator's predictions.
Imports `demo`, `errors`, `experiments/errors`, `experiments/policy_names`, `experiments/turns`, `prerequisites`,
`signals` and `testbed`; of other packages `controller`, `headway_job`, `policies` and `simulator`.
"""
