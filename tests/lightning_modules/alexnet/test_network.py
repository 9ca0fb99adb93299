"""The two-tower network: its size, first weights, input stages and towers."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lightning_modules.alexnet.network import UNIT_BIAS, AlexNet


def small(**changes) -> AlexNet:
    settings = {"num_classes": 10, "image_size": 28, "in_channels": 1, "width": 0.25, "hidden_size": 64}
    return AlexNet(**(settings | changes))


def test_parameter_count_is_the_papers():
    """Grouped convolutions and 9216 inputs to fc6: 60,965,224 parameters at 1000 classes."""
    with torch.device("meta"):
        network = AlexNet(num_classes=1000)
    assert sum(parameter.numel() for parameter in network.parameters()) == 60_965_224
    assert len(network.blocks) == 8


@pytest.mark.parametrize(
    ("size", "conv1"), [(224, 55), (227, 55), (64, 29), (66, 30), (56, 27), (32, 28), (28, 28), (34, 30)]
)
def test_every_input_stage_reaches_six_by_six(size, conv1):
    """224 with padding and 227 without give 55 x 55; fc6 reads 9216 numbers at every size."""
    with torch.device("meta"):
        network = AlexNet(num_classes=10, image_size=size)
        images = torch.empty(2, 3, size, size)
    seen = {}
    network.conv1.register_forward_hook(lambda module, inputs, output: seen.update(conv1=output.shape[-1]))
    network.fc6.register_forward_hook(lambda module, inputs, output: seen.update(fc6=inputs[0].shape[-1]))
    assert network(images).shape == (2, 10)
    assert seen == {"conv1": conv1, "fc6": 9216}


@pytest.mark.parametrize("size", range(28, 67))
def test_every_small_size_works(size):
    """Any side from 28 to 66 pixels leads to the 6 x 6 positions that fc6 reads."""
    with torch.device("meta"):
        assert AlexNet(num_classes=10, image_size=size)(torch.empty(1, 3, size, size)).shape == (1, 10)


@pytest.mark.parametrize("size", [27, 67, 100, 223, 225, 226, 256])
def test_other_sizes_are_refused_by_name(size):
    """A size that would change fc6's inputs is an error that lists the sizes that work."""
    with pytest.raises(ValueError, match=rf"image_size={size}.*224 or 227.*28 to 66"):
        AlexNet(num_classes=10, image_size=size)


def test_images_of_another_shape_are_refused():
    """A grey image for a colour network is named, not met inside a convolution."""
    with pytest.raises(ValueError, match=r"\(1, 28, 28\) but got \(3, 28, 28\)"):
        small()(torch.zeros(1, 3, 28, 28))


def test_paper_initialisation():
    """Every weight is N(0, 0.01); biases are 1 in conv2, conv4, conv5, fc6 and fc7, else 0."""
    torch.manual_seed(0)
    network = AlexNet(num_classes=1000, image_size=64)
    network.init_weights()
    for name, layer in network.named_children():
        if not isinstance(layer, nn.Conv2d | nn.Linear):
            continue
        assert layer.weight.std().item() == pytest.approx(0.01, rel=0.05)
        assert abs(layer.weight.mean().item()) < 5 * 0.01 / math.sqrt(layer.weight.numel())
        assert torch.equal(layer.bias, torch.full_like(layer.bias, 1.0 if name in UNIT_BIAS else 0.0))


def test_he_initialisation_keeps_the_first_loss_at_chance():
    """Weights have standard deviation sqrt(2 / inputs), and the first loss is that of guessing."""
    torch.manual_seed(0)
    network = small(initialisation="he", width=1.0)
    network.init_weights()
    # conv5 reads 192 channels of its tower in 3 x 3
    assert network.conv5.weight.std().item() == pytest.approx(math.sqrt(2 / (192 * 9)), rel=0.02)
    loss = F.cross_entropy(network.eval()(torch.randn(8, 1, 28, 28)), torch.arange(8))
    assert loss.item() == pytest.approx(math.log(10), abs=0.3)


def test_weights_follow_from_the_seed_also_after_meta():
    """A network built on the meta device gets the same weights as one built in memory."""
    networks = []
    for device in ("cpu", "meta"):
        with torch.device(device):
            network = small()
        network.to_empty(device="cpu")
        torch.manual_seed(7)
        network.init_weights()
        networks.append(network)
    for first, second in zip(*(network.parameters() for network in networks), strict=True):
        assert torch.equal(first, second)


def test_towers_meet_only_in_conv3_and_the_classifier():
    """conv2's second half does not depend on conv1's first half, also through normalisation."""
    network = small(width=1.0).eval()
    network.init_weights()
    maps = torch.randn(1, 96, 28, 28) * 30
    changed = maps.clone()
    changed[:, :48] = 0
    first, second = (network.norm2(F.relu(network.conv2(network.pool(network.norm1(x))))) for x in (maps, changed))
    assert torch.equal(first[:, 128:], second[:, 128:])
    assert not torch.allclose(first[:, :128], second[:, :128])


def test_layers_run_on_one_tower_alone():
    """The same layers, given one tower's filters and channels, compute that tower."""
    network = small(width=1.0)
    network.init_weights()
    maps = torch.randn(2, 96, 13, 13) * 30
    whole = network.norm2(network.conv2(network.norm1(maps)))
    half = slice(128, 256)
    network.conv2.weight = nn.Parameter(network.conv2.weight[half].detach())
    network.conv2.bias = nn.Parameter(network.conv2.bias[half].detach())
    torch.testing.assert_close(network.norm2(network.conv2(network.norm1(maps[:, 48:]))), whole[:, half])


@pytest.mark.slow
def test_he_initialisation_leaves_chance_on_a_small_set():
    """10 classes of 5 easy images at the paper's lr: from ln(10) to almost nothing, where a bad start is stuck."""
    torch.manual_seed(0)
    network = small(in_channels=3, width=1.0, hidden_size=512, dropout=0.0, initialisation="he")
    network.init_weights()
    targets = torch.arange(10).repeat(5)
    patterns = F.interpolate(torch.randn(10, 3, 4, 4), size=28)
    images = patterns[targets] + 0.1 * torch.randn(50, 3, 28, 28)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = F.cross_entropy(network(images), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(math.log(10), abs=0.3)
    assert losses[-1] < 0.1 * math.log(10)
