"""How many devices each dimension of the mesh gets."""

import math
from typing import NamedTuple


class Layout(NamedTuple):
    """Sizes of the mesh: groups that each hold the whole model, devices that share its shards, and devices that split
    each matrix. A size of None takes what the others leave."""

    replicate: int | None
    shard: int | None
    tensor: int | None

    def over(self, devices: int) -> "Layout":
        """The sizes on so many devices.

        Raises:
            ValueError: they do not multiply to the number of devices.
        """
        open_names = [name for name, size in self._asdict().items() if size is None]
        if len(open_names) > 1:
            raise ValueError(f"only one of {', '.join(f'strategy.{name}' for name in open_names)} may be null")
        given = {name: size for name, size in self._asdict().items() if size is not None}
        product = math.prod(given.values())
        words = " x ".join(f"strategy.{name}={size}" for name, size in given.items() if size > 1) or "a mesh of size 1"
        if open_names:
            if devices % product:
                raise ValueError(f"{words} does not divide devices={devices}")
            return self._replace(**{open_names[0]: devices // product})
        if product != devices:
            raise ValueError(f"{words} needs {product} devices, but there are devices={devices}")
        return self
