"""From windows to better weights. Knows no sandbox, no task and no sampler: windows and batches come as records."""
