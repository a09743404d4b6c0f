"""What this machine can do: its own limits, and how close training and sampling come to them."""
