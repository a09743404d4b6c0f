"""Numbers as a person may type them, on the command line and in YAML: in decimal, 1_000 for 1000, no leading zeros."""

import re

WHOLE_NUMBER = re.compile(r"[+-]?(0|[1-9][0-9]*(_[0-9]+)*)")
NUMBER = re.compile(rf"({WHOLE_NUMBER.pattern}(\.[0-9]*)?|[+-]?\.[0-9]+)([eE][+-]?[0-9]+)?")
