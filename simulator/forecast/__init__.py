"""When waiting jobs will start: ranges from samples of the future of one queue, widened by the error of earlier ranges.
Imports `errors`, `kernel`; of other packages `policies`.
"""
