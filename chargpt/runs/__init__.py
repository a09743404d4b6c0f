"""A run on disk: its folder and lock, checkpoints, saved state, loading, and starting from another run."""
