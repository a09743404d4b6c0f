"""A training in progress: how it is created or resumed, what it records and prints, and how it ends."""
