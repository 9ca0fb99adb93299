"""Settings for the whole suite, made before anything else is imported."""

import os

# Tests fork: a tokenizer's thread pool does not survive that, and one that was told to be parallel would wait for it.
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# Forked children compute on one thread; so that the parent leaves them no half-copied pool, it does too.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(items):
    """Tests marked `gpu` skip themselves, with the reason, where there is no CUDA device."""
    import pytest
    import torch

    # Autograd starts its threads at the first backward pass, for as many devices as there seem to be: after a test that
    # plans for a GPU one, which no fork survives. So the first one is here, where there are none but the CPU.
    torch.ones(1, requires_grad=True).sum().backward()
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
