"""What is trained: a plain `network.py` and a `module.py` for Lightning per model; weight decay and schedules."""
