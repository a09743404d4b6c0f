"""Text files to ids: sources, character sets, normalisation, vocabulary, encoding, cache, and a report on the text.

`sources.py` is where a new source of text is added. `source.py` has the bytes of one source; `reading.py` decodes them.
"""
