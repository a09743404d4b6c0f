"""Ids to weights: trainer, batches, optimizers, schedule, evaluation, metrics, progress bar, time budget, recipes."""
