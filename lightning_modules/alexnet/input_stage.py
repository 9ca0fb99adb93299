"""The first convolution and the pools for each image size, chosen so that fc6 always sees 6 x 6 positions."""

from dataclasses import dataclass

POSITIONS = 6
"""Side of the feature map that fc6 reads (Krizhevsky, Sutskever & Hinton, NIPS 2012, figure 2)."""


@dataclass(frozen=True)
class InputStage:
    """Kernel size, stride and padding of conv1, and whether conv5 is followed by a pool."""

    kernel_size: int
    stride: int
    padding: int
    last_pool: bool

    def conv1_size(self, image_size: int) -> int:
        """Side of conv1's output for square images of `image_size` pixels."""
        return (image_size + 2 * self.padding - self.kernel_size) // self.stride + 1


def input_stage(image_size: int) -> InputStage:
    """The stage for square images of `image_size` pixels.

    - 227 without padding and 224 with 2 pixels of it both give the paper's 55 x 55 -> 27 -> 13 -> 6.
    - 56 to 66: kernel 11, stride 2; conv1 gives 27 to 30, two pools make 6 of it and the pool after conv5 is
      left out.
    - 28 to 34: kernel 5, stride 1; likewise.

    Raises:
        ValueError: no stage leads from this size to 6 x 6.
    """
    if image_size in (224, 227):
        return InputStage(kernel_size=11, stride=4, padding=2 if image_size == 224 else 0, last_pool=True)
    if 56 <= image_size <= 66:
        return InputStage(kernel_size=11, stride=2, padding=4 if image_size <= 62 else 2, last_pool=False)
    if 28 <= image_size <= 34:
        return InputStage(kernel_size=5, stride=1, padding=2 if image_size <= 30 else 0, last_pool=False)
    raise ValueError(
        f"image_size={image_size}: AlexNet's fc6 needs 6 x 6 positions; "
        "use 224 or 227 (the paper's), 56 to 66, or 28 to 34"
    )
