"""The verbs of `python -m chargpt`: each module has the options of one verb, and calls the packages that do the work.

A new verb is a module here and a line in VERBS of `chargpt/__main__.py`.
"""
