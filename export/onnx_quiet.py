"""ONNX Runtime's tools without their remarks."""

import contextlib
import logging
from collections.abc import Iterator


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep what the tools log of what is done here on purpose to themselves, and logging as it was.

    They log on the root logger, and one of them sets it up anew when it is imported.
    """
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    root.setLevel(logging.ERROR)
    logging.getLogger("onnxruntime.quantization.matmul_nbits_quantizer").setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers
