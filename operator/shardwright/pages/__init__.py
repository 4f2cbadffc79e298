"""A plan as a page for a browser: one file that needs nothing else."""
