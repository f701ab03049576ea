"""Compares outcomes of a case: better, equal or worse under Headway, each with a reason. Pure functions."""
