"""Lossless compression with a model: `Compressor` turns any bytes into a small file and back.

The model computes in exact arithmetic, so that every machine restores the same bytes. The range coder writes them. This package
opens no run and writes no file; `commands/compress.py` and `decompress.py` do.
"""
