"""The first convolution and the pools for each image size, chosen so that fc6 always sees 6 x 6 positions."""

from dataclasses import dataclass

POSITIONS = 6
"""Side of the feature map that fc6 reads (Krizhevsky, Sutskever & Hinton, NIPS 2012, figure 2)."""


@dataclass(frozen=True)
class InputStage:
    """Kernel size, stride and padding of conv1, and kernel size and stride of the pool after conv5 (1: none)."""

    kernel_size: int
    stride: int
    padding: int
    last_kernel: int
    last_stride: int

    def conv1_size(self, image_size: int) -> int:
        """Side of conv1's output for square images of `image_size` pixels."""
        return (image_size + 2 * self.padding - self.kernel_size) // self.stride + 1


def input_stage(image_size: int) -> InputStage:
    """The stage for square images of `image_size` pixels.

    - 227 without padding and 224 with 2 pixels of it both give the paper's 55 x 55 -> 27 -> 13 -> 6.
    - 56 to 66: kernel 11, stride 2; conv1 gives 27 to 30, two pools make 6 of it and the pool after conv5 is
      left out.
    - 28 to 55: kernel 5, stride 1; a pool of stride 1 after conv5 makes 6 of what is left (6 to 12 positions).

    Raises:
        ValueError: no stage leads from this size to 6 x 6.
    """
    if image_size in (224, 227):
        return InputStage(11, stride=4, padding=2 if image_size == 224 else 0, last_kernel=3, last_stride=2)
    if 56 <= image_size <= 66:
        return InputStage(11, stride=2, padding=4 if image_size <= 62 else 2, last_kernel=1, last_stride=1)
    if 28 <= image_size <= 55:
        padding = 2 if image_size <= 30 else 0
        left = _pooled(_pooled(image_size + 2 * padding - 4))
        return InputStage(5, stride=1, padding=padding, last_kernel=left - POSITIONS + 1, last_stride=1)
    raise ValueError(
        f"image_size={image_size}: AlexNet's fc6 needs 6 x 6 positions; use 224 or 227 (the paper's), or 28 to 66"
    )


def _pooled(size: int) -> int:
    """Side after a pool of kernel 3 and stride 2."""
    return (size - 3) // 2 + 1
