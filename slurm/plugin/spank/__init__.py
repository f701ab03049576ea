"""The SPANK plugin: sbatch's, salloc's and srun's options of Headway. `headway-setup spank` builds it."""
