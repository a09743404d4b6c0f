"""The library behind train.py and sample.py: one noun a file, each importable without running a program."""
