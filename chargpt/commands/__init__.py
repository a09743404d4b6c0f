"""The verbs of `python -m chargpt`: each module has the options of one verb, and calls the packages that do the work."""
