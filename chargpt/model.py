"""The GPT. In a checkout it is model.py at the top of the repository; a wheel has a copy of that file here."""

from model import *  # noqa: F403
