"""The verb `train`. In a checkout it is train.py at the top of the repository; a wheel has a copy of that file here.

Do not edit this one.
"""

from train import main  # noqa: F401
