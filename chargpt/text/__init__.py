"""Text files to ids: sources (`sources.py` is where a new one is added), their bytes (`source.py`), decoding (`reading.py`),
normalisation, vocabulary, encoding, cache, and a report on the text."""
