"""`--to safetensors`: the weights alone, in one file."""
