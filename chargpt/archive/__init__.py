"""Lossless compression with a model: exact arithmetic, a range coder and the format of a compressed file."""
