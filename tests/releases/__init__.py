"""`make test-releases`: releases of Slurm in Debian roots of their own, and Headway's installation and tests inside them."""
