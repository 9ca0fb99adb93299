"""Image classification with AlexNet."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

from lightning_modules.alexnet.network import AlexNet
from lightning_modules.alexnet.single_tower import AlexNetTorchvision
from lightning_modules.base import WindowModule

IGNORED = -100
"""Target of images that are there only to fill a batch."""


class AlexNetModule(WindowModule):
    """Trains the two-tower network of 2012; reports top-1 and top-5 accuracy.

    A micro-batch holds `images` (B, C, H, W), or (B, crops, C, H, W) in evaluation, and `targets` (B,).
    """

    network_class: ClassVar[type[nn.Module]] = AlexNet

    def network_loss(self, network: nn.Module, batch: Mapping[str, Any]) -> Tensor:
        """Cross-entropy summed over the images of one micro-batch, in fp32; targets of -100 do not count."""
        logits = network(batch["images"]).float()
        return F.cross_entropy(logits, batch["targets"], ignore_index=IGNORED, reduction="sum")

    def scores(self, batch: Mapping[str, Any]) -> dict[str, Tensor]:
        """Sums over one micro-batch: `loss`, and the images whose class is the first guess or among five.

        Several crops of an image count as one: their softmax outputs are averaged (Krizhevsky et al. 2012,
        section 4.1).
        """
        log_probabilities = self.log_probabilities(batch["images"])
        targets = batch["targets"]
        guesses = log_probabilities.topk(min(5, log_probabilities.shape[-1]), dim=-1).indices
        hits = guesses == targets.unsqueeze(-1)  # never true for -100
        loss = F.nll_loss(log_probabilities, targets, ignore_index=IGNORED, reduction="sum")
        return {"loss": loss, "top1": hits[:, 0].sum(), "top5": hits.sum()}

    def log_probabilities(self, images: Tensor) -> Tensor:
        """Log probabilities (B, num_classes) in fp32 for `images` (B, C, H, W) or (B, crops, C, H, W)."""
        if images.dim() == 4:
            return F.log_softmax(self.network(images).float(), dim=-1)
        crops = images.shape[1]
        each = F.log_softmax(self.network(images.flatten(0, 1)).float(), dim=-1)
        return torch.logsumexp(each.unflatten(0, (-1, crops)), dim=1) - math.log(crops)

    def summarise(self, sums: Mapping[str, float]) -> dict[str, float]:
        """`val/loss`, and accuracies and errors as fractions of the images."""
        images = sums["units"]
        top1, top5 = sums["top1"] / images, sums["top5"] / images
        return {
            "val/loss": sums["loss"] / images,
            "val/top1": top1,
            "val/top5": top5,
            "val/top1_error": 1 - top1,
            "val/top5_error": 1 - top5,
        }


class AlexNetTorchvisionModule(AlexNetModule):
    """Trains torchvision's single-tower network, also from a weights file of torchvision's."""

    network_class: ClassVar[type[nn.Module]] = AlexNetTorchvision

    def load_weights(self, path: Path) -> None:
        """Load a state dict saved with `torch.save`; for another number of classes the last layer is fresh.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file holds no state dict of this network.
        """
        if not path.is_file():
            raise FileNotFoundError(f"model.weights={path}: no such file")
        state = torch.load(path, map_location="cpu", weights_only=True)
        own = self.network.state_dict()
        if not isinstance(state, dict) or state.keys() != own.keys():
            raise ValueError(f"model.weights={path}: not a state dict of torchvision's alexnet")
        head = ("classifier.6.weight", "classifier.6.bias")
        kept = {name for name in head if state[name].shape != own[name].shape}
        for name in own.keys() - kept:
            if state[name].shape != own[name].shape:
                raise ValueError(
                    f"model.weights={path}: {name} has shape {tuple(state[name].shape)}, "
                    f"the network's is {tuple(own[name].shape)}"
                )
        state = {name: state[name] for name in own.keys() - kept}
        set_model_state_dict(self.network, state, options=StateDictOptions(full_state_dict=True, strict=False))
