import pytest
import torch

from lightning_modules.transformer.cache import KeyValueCache
from lightning_modules.transformer.generate import filtered_probabilities, generate

PROMPTS = [[1, 2, 3, 4, 5, 6, 7, 8], [9], [5, 4, 3]]


def continuations(network, prompts, **settings):
    steps = list(generate(network, prompts, **settings))
    return [[step[row] for step in steps if step[row] is not None] for row in range(len(prompts))]


def greedy_without_cache(network, prompt, count):
    tokens = list(prompt)
    for _ in range(count):
        with torch.no_grad():
            tokens.append(int(network(torch.tensor([tokens]))[0, -1].argmax()))
    return tokens[len(prompt) :]


def test_cached_passes_equal_the_full_pass(small):
    """Reading a sequence in pieces through the cache gives the logits of reading it at once."""
    network, tokens = small(), torch.randint(97, (2, 40))
    cache = KeyValueCache(
        n_layers=2,
        rows=2,
        max_length=40,
        n_kv_heads=2,
        head_dim=16,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    with torch.no_grad():
        pieces = [network(piece, cache=cache) for piece in tokens.split([17, 1, 1, 21], dim=1)]
        torch.testing.assert_close(torch.cat(pieces, dim=1), network(tokens), rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="41 tokens do not fit a cache of 40"):
        network(tokens[:, :1], cache=cache)


@pytest.mark.parametrize("tied", [True, False])
def test_a_batch_of_prompts_is_each_prompt_alone(small, tied):
    """Prompts of different lengths together are continued as each alone, and as without a cache."""
    network = small(tie_embeddings=tied)
    together = continuations(network, PROMPTS, max_new_tokens=20, temperature=0)
    for prompt, tokens in zip(PROMPTS, together, strict=True):
        assert [tokens] == continuations(network, [prompt], max_new_tokens=20, temperature=0)
        assert tokens == greedy_without_cache(network, prompt, 20)


def test_generation_stops_at_the_context_length(small):
    """Each prompt fills its own context and ends there, without disturbing the shorter ones."""
    network = small(max_sequence_length=12)
    together = continuations(network, PROMPTS, max_new_tokens=100, temperature=0)
    # the token after the last that fits is still predicted
    assert [len(tokens) for tokens in together] == [12 - len(prompt) + 1 for prompt in PROMPTS]
    assert together == [greedy_without_cache(network, prompt, 13 - len(prompt)) for prompt in PROMPTS]


def test_a_row_stops_at_the_separator(small):
    """A prompt that produced the separator yields None from then on; the others go on undisturbed."""
    network = small()
    free = continuations(network, PROMPTS, max_new_tokens=20, temperature=0)
    stop = free[0][4]
    stopped = continuations(network, PROMPTS, max_new_tokens=20, temperature=0, stop_id=stop)
    expected = [tokens[: tokens.index(stop)] if stop in tokens else tokens for tokens in free]
    assert stopped == expected
    assert list(generate(network, PROMPTS[:1], max_new_tokens=20, temperature=0, stop_id=free[0][0])) == []


def test_sampling_follows_the_seed(small):
    """The same seed draws the same tokens, another seed others, and identical prompts differ from each
    other."""
    network = small()
    one, same, other = (
        continuations(network, [[1, 2]] * 2, max_new_tokens=20, temperature=2.0, seed=seed) for seed in (1, 1, 2)
    )
    assert one == same
    assert one != other
    assert one[0] != one[1]


def test_top_k_and_top_p_keep_the_most_probable():
    """top_k keeps k tokens, top_p the fewest that reach p, each renormalised; temperature sharpens."""
    logits = torch.tensor([[0.1, 0.4, 0.2, 0.3]]).log()
    probabilities = filtered_probabilities(logits, temperature=1.0)
    torch.testing.assert_close(probabilities, torch.tensor([[0.1, 0.4, 0.2, 0.3]]))
    top_2 = filtered_probabilities(logits, temperature=1.0, top_k=2)
    torch.testing.assert_close(top_2, torch.tensor([[0.0, 4 / 7, 0.0, 3 / 7]]))
    torch.testing.assert_close(filtered_probabilities(logits, temperature=1.0, top_p=0.65), top_2)
    three = filtered_probabilities(logits, temperature=1.0, top_p=0.75)
    torch.testing.assert_close(three, torch.tensor([[0.0, 4 / 9, 2 / 9, 3 / 9]]))
    least = filtered_probabilities(logits, temperature=1.0, top_p=1e-6)
    torch.testing.assert_close(least, torch.tensor([[0.0, 1.0, 0.0, 0.0]]))
    both = filtered_probabilities(logits, temperature=1.0, top_k=2, top_p=0.5)
    torch.testing.assert_close(both, least)  # p counts what top_k left: 4/7 reaches 0.5
    cold = filtered_probabilities(logits, temperature=0.5)
    torch.testing.assert_close(cold, torch.tensor([[1.0, 16.0, 4.0, 9.0]]) / 30)


@pytest.mark.parametrize(
    ("prompts", "settings", "message"),
    [
        ([[1], []], {}, "prompt 1 is empty"),
        ([[1] * 129], {}, "prompt 0 has 129 tokens"),
        ([[97]], {}, "prompt 0 has tokens outside"),
        ([[1]], {"temperature": -1.0}, "temperature"),
        ([[1]], {"top_k": 0}, "top_k"),
        ([[1]], {"top_p": 1.5}, "top_p"),
    ],
)
def test_bad_requests_are_refused(small, prompts, settings, message):
    """Each setting out of range and each impossible prompt is named."""
    with pytest.raises(ValueError, match=message):
        next(generate(small(), prompts, max_new_tokens=1, **settings))
