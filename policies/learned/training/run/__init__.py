"""One training in its folder: settings, checkpoints, figures, seeds, early stopping. Imports `weights` alone."""
