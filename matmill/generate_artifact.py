"""Continuing prompts with an exported model, in the runtime of its format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from matmill.artifact import read_artifact
from matmill.errors import ConfigError
from matmill.generate import Continued
from matmill.text_stream import TextStream

if TYPE_CHECKING:
    import torch


def of_artifact(config: DictConfig, prompts: list[str]) -> Continued:
    """The config's artifact continuing `prompts`, one after another: runtimes take texts of one length only.

    Raises:
        ConfigError: it is no language model, cannot be loaded, or a prompt is longer than its context.
    """
    artifact = read_artifact(config.artifact)
    if artifact.figures["kind"] != "text":
        raise artifact.error("classifies images, it does not generate text")
    artifact.check_runtime(config.trust)
    # Imported before the clock starts: this takes seconds.
    import lightning_modules.transformer.generate  # noqa: F401

    runtime, context = artifact.load(), int(artifact.figures["max_sequence_length"])
    ids = runtime.token_ids(prompts)
    for number, tokens in enumerate(ids, 1):
        if not 0 < len(tokens) <= context:
            raise ConfigError(f"prompt {number} has {len(tokens)} tokens; {artifact.name} takes 1 to {context}")
    steps = _steps(runtime, ids, config, artifact.figures.get("stop_id"), context)
    return Continued(ids, steps, lambda: TextStream(runtime.text), context)


def _steps(
    runtime: Any, prompts: list[list[int]], config: DictConfig, stop: int | None, context: int
) -> Iterator[list[int | None]]:
    import torch

    generator = torch.Generator().manual_seed(config.seed)
    for row, prompt in enumerate(prompts):
        room = min(len(prompt) + config.max_new_tokens, context)
        logits = runtime.prefill(torch.tensor([prompt]), room)
        for length in range(len(prompt), len(prompt) + config.max_new_tokens):
            token = _drawn(logits, config, generator)
            if token == stop:
                break
            yield [token if other == row else None for other in range(len(prompts))]
            if length + 1 > room or length + 1 >= len(prompt) + config.max_new_tokens:
                break
            logits = runtime.step(torch.tensor([token]))


def _drawn(logits: torch.Tensor, config: DictConfig, generator: torch.Generator) -> int:
    import torch

    from lightning_modules.transformer.generate import filtered_probabilities

    logits = logits.float()
    if config.temperature == 0:
        return int(logits.argmax())
    chances = filtered_probabilities(logits, temperature=config.temperature, top_k=config.top_k, top_p=config.top_p)
    return int(torch.multinomial(chances, 1, generator=generator))
