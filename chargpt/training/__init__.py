"""Ids to weights, one step at a time: trainer, weights, batches, optimizers with the schedule, evaluation, initialisation.

No folder, no clock, no output, no options.
"""
