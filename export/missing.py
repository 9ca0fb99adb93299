"""Optional packages: what to install where one is not there."""

from importlib.util import find_spec


def missing(package: str, extra: str) -> str | None:
    """One line that names the extra which brings `package`, or None if it can be imported."""
    if find_spec(package) is not None:
        return None
    return f"needs the package {package}, not installed: pip install 'matmill[{extra}]'"
