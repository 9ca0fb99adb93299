"""Settings for the whole suite, made before anything else is imported."""

import os

# Tests fork: a tokenizer's thread pool does not survive that, and one that was told to be parallel would wait for it.
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# Forked children compute on one thread; so that the parent leaves them no half-copied pool, it does too.
os.environ.setdefault("OMP_NUM_THREADS", "1")
