"""The verbs of `python -m chargpt`: each module has the options of one verb, and calls the packages that do the work.

A new verb is a module here, with `main(arguments)`, and a line in VERBS of `verbs.py`.
"""
