"""What will be trained, decided before the first step: options, settings, the loss law, candidates, the plan and the clock.

`plan.py` makes the decisions in their order. `chosen_for_time.py` has what --minutes chooses, `law.py` what loss to expect.
Nothing here trains, beyond timing steps, and nothing here writes a run.
"""
