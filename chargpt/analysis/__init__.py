"""Measurements of a model or a run: losses, copies, attention, and the speed of this machine. They return plain data.

Nothing here prints, reads options or writes HTML.
"""
