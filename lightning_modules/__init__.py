"""What is trained: each model has a plain `network.py` and a `module.py` that Lightning trains; optimizers' groups and schedules."""
