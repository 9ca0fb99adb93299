"""``matmill generate``: continue prompts with a trained transformer, or with one that was exported."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Gt, Le, MinLen
from omegaconf import DictConfig

from matmill.errors import ConfigError
from matmill.run import find_checkpoint, load_run
from matmill.schema import check
from matmill.text_stream import TextStream


@dataclass(kw_only=True)
class Generate:
    """The settings of the command."""

    run: Annotated[str, MinLen(1)] | None
    artifact: Annotated[str, MinLen(1)] | None
    checkpoint: str
    trust: bool
    prompt: str | Annotated[list[str], MinLen(1)]
    max_new_tokens: Annotated[int, Gt(0)]
    temperature: Annotated[float, Ge(0)]
    top_k: Annotated[int, Gt(0)] | None
    top_p: Annotated[float, Gt(0), Le(1)] | None
    seed: Annotated[int, Ge(0)]
    stream: bool
    debug: bool


@dataclass(frozen=True)
class Continued:
    """Prompts that are being continued.

    Attributes:
        prompts: their token ids.
        steps: one new token for each prompt at a time, None for one that has ended.
        make_stream: gives what turns one prompt's new tokens into text.
        context: tokens that the model can see.
    """

    prompts: list[list[int]]
    steps: Iterator[list[int | None]]
    make_stream: Callable[[], TextStream]
    context: int


def run(config: DictConfig) -> None:
    """Print each prompt with its continuation on standard output; remarks go to standard error.

    A single prompt's text appears while it grows. A text ends where the model ends the document, at the
    model's context length (which is said), or after `max_new_tokens`.

    Raises:
        ConfigError: a setting is wrong, or the run or artifact is not one of a transformer.
    """
    check(config, Generate, supplied=(), filled=())
    if (config.run is None) == (config.artifact is None):
        raise ConfigError("run, artifact: set one of them: run=RUN or artifact=RUN/exports/NAME")
    prompts = [config.prompt] if isinstance(config.prompt, str) else list(config.prompt)
    if config.artifact is None:
        continued = _of_run(config, prompts)
    else:
        from matmill.generate_artifact import of_artifact

        continued = of_artifact(config, prompts)
    started, counts = time.perf_counter(), [0] * len(prompts)
    pieces = _text_pieces(continued, counts)
    if config.stream and len(prompts) == 1:
        print(prompts[0], end="", flush=True)
        for step in pieces:
            print(step[0], end="", flush=True)
        print()
    else:
        _print_labelled(prompts, list(pieces))
    seconds = time.perf_counter() - started
    print(f"{sum(counts)} tokens, {sum(counts) / seconds:.1f} tokens/s", file=sys.stderr)
    lengths = [count + len(prompt) for count, prompt in zip(counts, continued.prompts, strict=True)]
    full = [number for number, length in enumerate(lengths, 1) if length > continued.context]
    if full:
        which = "" if len(prompts) == 1 else f" of prompt {', '.join(map(str, full))}"
        print(f"stopped{which} at the model's context of {continued.context} tokens", file=sys.stderr)


def _of_run(config: DictConfig, prompts: list[str]) -> Continued:
    find_checkpoint(Path(config.run), config.checkpoint)  # before what takes seconds to import
    from lightning_modules.transformer.generate import generate

    saved, module = load_run(config.run, config.checkpoint)
    tokenizer, separator = _text_data(Path(config.run), saved, module)
    ids = [tokenizer.encode(prompt).ids for prompt in prompts]
    steps = generate(
        module.network,
        ids,
        max_new_tokens=config.max_new_tokens,
        temperature=config.temperature,
        top_k=config.top_k,
        top_p=config.top_p,
        seed=config.seed,
        stop_id=separator,
    )

    return Continued(ids, steps, lambda: TextStream(tokenizer.decode), module.network.max_sequence_length)


def _text_data(path: Path, saved: DictConfig, module: Any) -> tuple[Any, int]:
    """The tokenizer and the separator's id that the run keeps beside its checkpoints."""
    from lightning_modules.transformer import Transformer

    if not isinstance(module.network, Transformer):
        raise ConfigError(f"run={path}: its model is {saved.model._target_}, which does not generate text")
    from tokenizers import Tokenizer

    facts = json.loads((path / "data" / "data.json").read_text())
    return Tokenizer.from_file(str(path / "data" / "tokenizer.json")), int(facts["separator_id"])


def _text_pieces(continued: Continued, counts: list[int]) -> Iterator[list[str]]:
    """The text that each step adds to each prompt, "" while a character is incomplete; counts the tokens.

    The last piece is what a text that ends within a character leaves.
    """
    streams = [continued.make_stream() for _ in counts]
    for step in continued.steps:
        texts = [""] * len(step)
        for row, token in enumerate(step):
            if token is not None:
                counts[row] += 1
                texts[row] = streams[row].add(token)
        yield texts
    yield [stream.rest() for stream in streams]


def _print_labelled(prompts: list[str], steps: list[list[str]]) -> None:
    """Whole texts, numbered when there are several."""
    for row, prompt in enumerate(prompts):
        label = f"[{row + 1}] " if len(prompts) > 1 else ""
        print(label + prompt + "".join(step[row] for step in steps))
        if row + 1 < len(prompts):
            print()
