"""`headway-web`, the page for users and operators: a client of status.sock that shows what the signed-in user may see.
Imports `base`; of other packages `headway_client` and `policies`.
"""
