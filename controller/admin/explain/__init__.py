"""`headway why`: pure functions from the last cycle to an explanation."""
