"""Ids to weights, one step at a time: trainer, weights, batches, optimizers, learning rate, evaluation, initialisation.

No folder, no clock, no output, no options.
"""
