"""The single-tower network against torchvision's."""

import pytest
import torch
import torchvision

from lightning_modules.alexnet import AlexNetTorchvision, AlexNetTorchvisionModule


def module(**changes) -> AlexNetTorchvisionModule:
    settings = {"num_classes": 1000, "image_size": 64} | changes
    made = AlexNetTorchvisionModule(optimizer=torch.optim.SGD, **settings)
    made.network = made.build_network()
    return made


def test_outputs_equal_torchvisions_bit_for_bit():
    """torchvision's state dict loads as it is and gives the same logits."""
    theirs = torchvision.models.alexnet().eval()
    ours = AlexNetTorchvision(num_classes=1000).eval()
    ours.load_state_dict(theirs.state_dict())
    images = torch.randn(1, 3, 224, 224)
    assert torch.equal(ours(images), theirs(images))
    assert sum(parameter.numel() for parameter in ours.parameters()) == 61_100_840


def test_small_images_are_refused():
    """Sizes at which nothing is left to pool are named up front."""
    with pytest.raises(ValueError, match=r"image_size=62.*63 or more"):
        AlexNetTorchvision(num_classes=10, image_size=62)
    assert AlexNetTorchvision(num_classes=10, image_size=63)(torch.zeros(1, 3, 63, 63)).shape == (1, 10)


def test_weights_file_with_another_number_of_classes(tmp_path):
    """Fine-tuning: everything but the last layer comes from the file; a file of something else is refused."""
    source = module()
    torch.save(source.network.state_dict(), tmp_path / "alexnet.pth")
    target = module(num_classes=7)
    target.load_weights(tmp_path / "alexnet.pth")
    assert torch.equal(target.network.classifier[4].weight, source.network.classifier[4].weight)
    assert target.network.classifier[6].weight.shape == (7, 4096)
    with pytest.raises(ValueError, match=r"features\.0\.weight has shape"):
        module(in_channels=1).load_weights(tmp_path / "alexnet.pth")
    torch.save({"weight": torch.zeros(1)}, tmp_path / "other.pth")
    with pytest.raises(ValueError, match="not a state dict of torchvision's alexnet"):
        target.load_weights(tmp_path / "other.pth")
    with pytest.raises(FileNotFoundError, match=r"none\.pth"):
        target.load_weights(tmp_path / "none.pth")
