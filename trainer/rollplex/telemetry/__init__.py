"""What a run measured and how it is shown: events, metric keys, the run folder, trackers, the progress display."""
