"""HTML pages: the report on a run, the attention of its heads, and a scored text. What they show comes from analysis/."""
