"""The formats of other programs: exports of a run, each checked in its program, and runs from the files of others."""
