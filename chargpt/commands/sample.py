"""The verb `sample`. In a checkout it is sample.py at the top of the repository; a wheel has a copy of that file here.

Do not edit this one.
"""

from sample import main  # noqa: F401
