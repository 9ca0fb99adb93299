"""plotly's script for the page: packed, so that a page is two megabytes instead of five."""

from __future__ import annotations

import base64
import gzip
import hashlib
from functools import cache
from importlib import resources


@cache
def packed() -> str:
    """plotly.js, gzip in base64: DecompressionStream of every browser since 2023 unpacks it.

    Raises:
        ModuleNotFoundError: the package plotly is not installed.
    """
    return base64.b64encode(gzip.compress(_source(), 9, mtime=0)).decode()


@cache
def plotly_hash() -> str:
    """The hash by which the page's security policy lets plotly's script run, and no other."""
    return policy_hash(_source())


def policy_hash(script: bytes) -> str:
    """A script's source expression of a content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode()}'"


def _source() -> bytes:
    return (resources.files("plotly") / "package_data" / "plotly.min.js").read_bytes()
