"""C sources, what compiles and loads them, and what each of them supports."""
