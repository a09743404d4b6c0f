"""The GPT. In a checkout it is model.py at the top of the repository; a wheel has a copy of that file here.

Do not edit this one.
"""

from model import *  # noqa: F403
