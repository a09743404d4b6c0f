"""The formats of other programs: exports of a run, and runs made of their models.

`export.py` has the table of the formats; each has a module with `write`. Tests load exports in their programs and compare them
with the run. `hugging_face.py` and `nanogpt.py` read models; `importing.py` saves them as runs. This
package parses no options; `commands/export.py` and `import_run.py` do.
"""
