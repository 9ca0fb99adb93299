"""Image classification data: class folders, decoding, augmentation."""

from datamodules.images.module import ImageData

__all__ = ["ImageData"]
