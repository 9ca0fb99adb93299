"""Continuing prompts token by token, for several prompts at once."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from lightning_modules.transformer.cache import KeyValueCache
from lightning_modules.transformer.network import Transformer


def filtered_probabilities(
    logits: Tensor, *, temperature: float, top_k: int | None = None, top_p: float | None = None
) -> Tensor:
    """Logits (B, V) to the probabilities (B, V) to sample from, fp32.

    `top_k` keeps the k most probable tokens; `top_p` (Holtzman et al. 2020, section 3.1) keeps the smallest
    set of most probable tokens whose probabilities, at this temperature and after `top_k`, reach p. At least
    one is kept.
    """
    ordered, order = (logits.float() / temperature).sort(dim=-1, descending=True)
    if top_k is not None:
        ordered[:, top_k:] = -torch.inf
    probabilities = ordered.softmax(dim=-1)
    if top_p is not None:
        before = probabilities.cumsum(dim=-1) - probabilities  # mass of the more probable ones
        before[:, 0] = 0.0
        probabilities = probabilities.masked_fill(before >= top_p, 0.0)
        probabilities[:, 0].clamp_(min=torch.finfo(torch.float32).tiny)
        probabilities = probabilities / probabilities.sum(dim=-1, keepdim=True)
    return torch.zeros_like(probabilities).scatter_(-1, order, probabilities)


def _check(
    network: Transformer,
    prompts: Sequence[Sequence[int]],
    temperature: float,
    top_k: int | None,
    top_p: float | None,
) -> None:
    for number, prompt in enumerate(prompts):
        if not prompt:
            raise ValueError(f"prompt {number} is empty: give at least the separator token")
        if len(prompt) > network.max_sequence_length:
            raise ValueError(
                f"prompt {number} has {len(prompt)} tokens, more than "
                f"model.max_sequence_length={network.max_sequence_length}"
            )
        if not all(0 <= token < network.vocab_size for token in prompt):
            raise ValueError(f"prompt {number} has tokens outside model.vocab_size={network.vocab_size}")
    if temperature < 0:
        raise ValueError(f"temperature={temperature} must be 0 (the most probable token) or positive")
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k={top_k} must be at least 1")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p={top_p} must be in (0, 1]")


def generate(
    network: Transformer,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    stop_id: int | None = None,
) -> Iterator[list[int | None]]:
    """Continues each of `prompts` (token ids, of any lengths); yields one new token per prompt at a time.

    `temperature` 0 takes the most probable token. A prompt is finished, and yields None from then on, when it produced
    `stop_id` (which is not yielded) or has filled `network.max_sequence_length`: the window does not slide. Ends when
    all are finished or after `max_new_tokens`. A prompt's most probable continuation does not depend on its companions.

    Raises ValueError, at the first step, for an empty or too long prompt or a setting out of range.
    """
    _check(network, prompts, temperature, top_k, top_p)
    network.eval()  # stays so: dropout has no place in what follows
    weight, room = network.embedding.weight, network.max_sequence_length
    generator = torch.Generator(weight.device).manual_seed(seed)
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=weight.device)
    longest = int(lengths.max())
    cache = KeyValueCache(
        n_layers=network.n_layers,
        rows=len(prompts),
        max_length=min(longest + max_new_tokens, room),
        n_kv_heads=network.n_kv_heads,
        head_dim=network.head_dim,
        dtype=weight.dtype,
        device=weight.device,
    )

    @torch.inference_mode()
    def next_tokens(tokens: Tensor, newest: Tensor) -> Tensor:
        """Reads `tokens` (B, T); what follows each row's token number `newest` (B,)."""
        hidden = network.hidden(tokens, cache=cache)
        logits = network.logits(hidden[torch.arange(len(tokens), device=tokens.device), newest])
        if temperature == 0:
            return logits.argmax(dim=-1)
        probabilities = filtered_probabilities(logits, temperature=temperature, top_k=top_k, top_p=top_p)
        return torch.multinomial(probabilities, 1, generator=generator).squeeze(1)

    padded = [[*prompt, *[0] * (longest - len(prompt))] for prompt in prompts]
    tokens, newest = torch.tensor(padded, device=weight.device), lengths - 1
    finished = torch.zeros_like(lengths, dtype=torch.bool)
    for _ in range(max_new_tokens):
        new = next_tokens(tokens, newest)
        if stop_id is not None:
            finished = finished | (new == stop_id)
        if finished.all():
            return
        yield [None if done else token for token, done in zip(new.tolist(), finished.tolist(), strict=True)]
        finished = finished | (lengths >= room)
        # A finished row goes on in place: what it computes is not looked at.
        cache.keep(lengths.clamp(max=cache.max_length - 1))
        lengths = lengths + (~finished).long()
        tokens, newest = new.unsqueeze(1), torch.zeros_like(lengths)
