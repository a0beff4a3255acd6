"""What a job will need and how long a step takes, before a GPU is touched: costs, simulator, plan (no torch)."""
