"""What will be trained, decided before the first step: options, settings, the loss law, candidates, the plan and its time.

`plan.py` makes the decisions in their order. Nothing here trains, beyond timing steps, and nothing here writes a run.
"""
