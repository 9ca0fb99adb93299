"""AlexNet: the two-tower network of 2012 and torchvision's single-tower one."""

from lightning_modules.alexnet.module import AlexNetModule, AlexNetTorchvisionModule
from lightning_modules.alexnet.network import AlexNet
from lightning_modules.alexnet.single_tower import AlexNetTorchvision

__all__ = ["AlexNet", "AlexNetModule", "AlexNetTorchvision", "AlexNetTorchvisionModule"]
