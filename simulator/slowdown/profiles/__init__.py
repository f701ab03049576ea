"""What models read about the jobs' networks: profiles, those of the papers, and their files. Imports no slowdown model."""
