"""Text files to ids: sources, character sets, normalisation, vocabulary, encoding, cache, and a report on the text."""
