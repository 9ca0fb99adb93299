"""What leaves a run: one file a format, each reloaded and scored in the runtime that will use it."""
