"""A run on disk: its folder and lock, checkpoints, loading, and starting from another run.

`checkpoint_schema.py` is the schema of a checkpoint's state.json. `checkpoint.py` writes and reads the files of a checkpoint.
"""
