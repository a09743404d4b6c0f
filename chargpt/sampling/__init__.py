"""Weights to text: decoders, sampling rules, stop rules, printing and the interactive mode."""
