"""Tests of headway_job, the package that runs inside users' jobs; in the same folders as the package."""
