import pytest
import torch
import torch.nn.functional as F

from lightning_modules.transformer.head import Head, chunk_tokens, summed_cross_entropy


def loss_and_gradients(network, tokens, targets):
    network.zero_grad()
    loss = network(tokens, targets)
    loss.backward()
    return loss.detach(), [parameter.grad.clone() for parameter in network.parameters()]


@pytest.mark.parametrize("tied", [True, False])
def test_chunked_loss_is_the_loss(small, tied):
    """Chunks of any size give the loss of the full logits and its gradients, with some targets ignored."""
    tokens, targets = torch.randint(97, (2, 2, 40))
    targets[0, 5:20] = -100
    whole = small(tie_embeddings=tied)
    expected = F.cross_entropy(whole(tokens).flatten(0, 1), targets.flatten(), reduction="sum")
    loss, gradients = loss_and_gradients(whole, tokens, targets)
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-5, atol=0)
    for chunk in (7, 16, 80):
        chunked = small(tie_embeddings=tied, loss_chunk_tokens=chunk)
        chunked_loss, chunked_gradients = loss_and_gradients(chunked, tokens, targets)
        torch.testing.assert_close(chunked_loss, loss, rtol=1e-5, atol=0)
        for one, other in zip(chunked_gradients, gradients, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5 * float(other.abs().max()))


@pytest.mark.parametrize("chunk", [None, 16])
def test_all_targets_ignored_is_zero(small, chunk):
    """A micro-batch of padding, or a chunk of it, adds 0 to the loss and 0 to the gradients, never NaN."""
    network = small(loss_chunk_tokens=chunk)
    loss, gradients = loss_and_gradients(network, torch.randint(97, (1, 40)), torch.full((1, 40), -100))
    assert loss == 0
    assert all((gradient == 0).all() for gradient in gradients)


@pytest.mark.parametrize("mode", ["true", "mixed"])
@pytest.mark.parametrize("chunk", [None, 64])
def test_loss_in_bf16_is_an_fp32_number(mode, chunk):
    """With bf16 hidden states and weights the loss is fp32: only the logits are rounded, not the sum."""
    hidden, weight, targets = torch.randn(256, 32), torch.randn(1000, 32) / 4, torch.randint(1000, (256,))
    exact = summed_cross_entropy(hidden, weight, targets, None)
    if mode == "true":
        loss = summed_cross_entropy(hidden.bfloat16(), weight.bfloat16(), targets, chunk)
    else:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = summed_cross_entropy(hidden, weight, targets, chunk)
    assert loss.dtype == torch.float32
    # logits of size 2 carry errors of about 2**-8, which average out over 256 tokens; a bf16 sum would be
    # 4e-3 off
    torch.testing.assert_close(loss, exact, rtol=5e-4, atol=0)


def peak_bytes(chunk: int | None) -> int:
    """Largest sum of live memory during forward and backward, from the profiler's record of allocations."""
    head, hidden = Head(8, 50_000, chunk), torch.randn(1, 512, 8, requires_grad=True)
    targets = torch.randint(50_000, (1, 512))
    with torch.profiler.profile(profile_memory=True) as profile:
        head(hidden, targets).backward()
    live = peak = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    return peak


def test_chunks_lower_the_peak_memory():
    """For 50,000 tokens and T=512 chunks of 64 need less than half, and the peak falls with the chunk."""
    whole, quarter, eighth = (peak_bytes(chunk) for chunk in (512, 128, 64))
    assert whole > 512 * 50_000 * 4
    assert eighth < quarter < whole / 2


def test_chunk_size_follows_the_vocabulary():
    """Small logits are made at once; large ones in chunks of 64 MiB, though of no fewer than 256 tokens."""
    assert chunk_tokens(4096, 4096) == 4096
    assert chunk_tokens(16384, 4096) == 4096
    assert chunk_tokens(8192, 128256) == 256
