"""`headway top`: the state of controller and queue on a terminal, always current. `screen` is what is shown, `app` the program.
Imports `base`, `cli/client` and `cli/render`; of other packages `protos`.
"""
