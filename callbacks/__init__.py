"""What is watched and guarded during a run: checkpoints and signals, metrics, utilization, anomalies."""
