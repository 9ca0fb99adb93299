"""What a sweep cannot do as it was asked."""


class SweepError(ValueError):
    """The space, the study or the devices do not allow what was asked for: one line that names the key or the file.

    Any other `ValueError` that comes out of a sweep is a mistake of its own, and is shown as one.
    """
