"""What leaves a run: each format in a file of its own, all written, reloaded and scored by one pipeline."""
