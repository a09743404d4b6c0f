"""Several processes that train one run: who they are, and what they exchange."""
