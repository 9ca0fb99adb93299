"""Loss and scores of image classification."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lightning_modules.alexnet import AlexNetModule


class Logits(nn.Module):
    """Reads the logits off an image's first row."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images[:, 0, 0, :10]


@pytest.fixture
def module() -> AlexNetModule:
    made = AlexNetModule(optimizer=torch.optim.SGD, num_classes=10, image_size=28, in_channels=1)
    made.network = Logits()
    return made


def test_scores_count_hits_and_leave_out_blank_targets(module):
    """Top-1 and top-5 hits and the loss count every image but those with target -100."""
    images = torch.zeros(4, 1, 28, 28)
    images[:, 0, 0, :10] = -torch.arange(10.0)  # class 0 first, then 1, 2, ...
    batch = {"images": images, "targets": torch.tensor([0, 4, 5, -100])}
    scores = module.scores(batch)
    assert (scores["top1"].item(), scores["top5"].item()) == (1, 2)
    expected = F.cross_entropy(images[:3, 0, 0, :10], batch["targets"][:3], reduction="sum")
    torch.testing.assert_close(scores["loss"], expected)
    torch.testing.assert_close(module.network_loss(module.network, batch), expected)
    summary = module.summarise({"loss": 3.0, "top1": 1, "top5": 2, "units": 3})
    assert summary == pytest.approx(
        {
            "val/loss": 1.0,
            "val/top1": 1 / 3,
            "val/top5": 2 / 3,
            "val/top1_error": 2 / 3,
            "val/top5_error": 1 / 3,
        }
    )


def test_crops_average_probabilities_not_logits(module):
    """The prediction for several crops of one image is the mean of their softmax outputs."""
    images = torch.randn(3, 10, 1, 28, 28) * 3
    targets = torch.tensor([1, 2, 3])
    mean = images[:, :, 0, 0, :10].softmax(-1).mean(1)
    scores = module.scores({"images": images, "targets": targets})
    torch.testing.assert_close(scores["loss"], F.nll_loss(mean.log(), targets, reduction="sum"))
    assert scores["top1"].item() == (mean.argmax(-1) == targets).sum().item()


def test_bf16_logits_are_scored_in_fp32(module):
    """The loss of half-precision logits is summed in fp32."""
    batch = {"images": torch.randn(2, 1, 28, 28).bfloat16(), "targets": torch.tensor([1, 2])}
    assert module.network_loss(module.network, batch).dtype == torch.float32
