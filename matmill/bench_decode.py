"""`matmill bench decode`: how fast a decoder generates on this machine, and how near to the memory's speed.

Decoding reads all weights for every new token, once for the whole batch, and each sequence's keys and values: it is
bound by memory until the batch is large. What a step must read, over the time that it takes, is set beside the speed
at which this machine copies as many bytes as the weights have, measured in the same minutes (and with the same caches
at work).
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from matmill.errors import ConfigError
from utilization.decoder import Decoder

WARM_UP_STEPS = 2
PREFILLS = 3
"""Timed prefills of each batch, after one that is not."""

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def run(config: DictConfig) -> int:
    """Time prefill and decoding of every `batch` in turn, step by step, and print a row for each.

    With `artifact` exported models are timed instead.
    """
    if config.artifact:
        from matmill.bench_artifacts import run as of_artifacts

        return of_artifacts(config)
    found = rows(config)
    if config.format == "json":
        json.dump(found, sys.stdout, indent=2)
        print()
    else:
        _show(found, config)
    return 0


@torch.inference_mode()
def rows(config: DictConfig) -> list[dict[str, Any]]:
    """One row for each of `batch`: the run's network, or `model` with random weights, after `prompt_tokens` tokens.

    Raises:
        ConfigError: it is no transformer of matmill's, or prompt and `steps` do not fit its context.
    """
    from lightning_modules.transformer.generate import generate

    network = _network(config)
    new_tokens = 1 + WARM_UP_STEPS + config.steps
    if config.prompt_tokens + new_tokens > network.max_sequence_length:
        raise ConfigError(
            f"prompt_tokens={config.prompt_tokens} and {new_tokens} new ones (steps={config.steps}) are more than "
            f"model.max_sequence_length={network.max_sequence_length}"
        )
    draw = torch.Generator().manual_seed(config.seed)
    batches = list(config.batch)
    prompts = {
        batch: torch.randint(network.vocab_size, (batch, config.prompt_tokens), generator=draw).tolist()
        for batch in batches
    }
    first: dict[int, list[float]] = {batch: [] for batch in batches}
    sequences = {}
    for _ in range(1 + PREFILLS):
        for batch in batches:
            sequences[batch] = generate(network, prompts[batch], max_new_tokens=new_tokens, temperature=0)
            first[batch].append(_seconds(partial(next, sequences[batch])))
    copy, copied = _copy(network)
    steps: dict[int, list[float]] = {batch: [] for batch in batches}
    copies = []
    for _ in range(WARM_UP_STEPS + config.steps):
        for batch in batches:
            steps[batch].append(_seconds(partial(next, sequences[batch])))
        copies.append(copied / _seconds(copy))
    return _rows(config, network, first, steps, statistics.median(copies[WARM_UP_STEPS:]))


def _network(config: DictConfig) -> Any:
    """The decoder in `dtype`, on a GPU if there is one: the run's, or the config's with weights drawn from `seed`."""
    from lightning_modules.transformer import Transformer
    from matmill import assemble
    from matmill.run import load_config, load_run
    from matmill.targets import resolve

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    source = config if config.run is None else load_config(Path(config.run))
    target = resolve(source.model._target_, list(source.allow_targets))
    if not issubclass(getattr(target, "network_class", object), Transformer):
        raise ConfigError(f"what=decode: {source.model._target_} does not generate text; give run= or model= that does")
    if config.run is not None:
        return load_run(config.run)[1].network.to(device, DTYPES[config.dtype])
    assemble.quiet_libraries()
    if config.model.vocab_size is None:
        assemble.build_data(config)
    with torch.device("meta"):
        network: Any = assemble.build_module(config).build_network()  # type: ignore[operator]
    network = network.to(DTYPES[config.dtype]).to_empty(device=device)
    torch.manual_seed(config.seed)
    network.init_weights()
    return network


def _copy(network: torch.nn.Module) -> tuple[Callable[[], Any], int]:
    """A copy between two buffers that together have as many bytes as the weights, and the bytes that it moves."""
    weights = list(network.parameters())
    size = max(sum(weight.nbytes for weight in weights) // 2, 2**20)
    source, target = (torch.ones(size, dtype=torch.uint8, device=weights[0].device) for _ in range(2))
    return lambda: target.copy_(source), 2 * size


def _rows(
    config: DictConfig,
    network: Any,
    first: dict[int, list[float]],
    steps: dict[int, list[float]],
    copy_bytes_per_second: float,
) -> list[dict[str, Any]]:
    from utilization.decoder import decoder_sizes
    from utilization.inference import input_table_bytes, weight_bytes

    sizes = decoder_sizes(network)
    assert sizes is not None
    bits = DTYPES[config.dtype].itemsize * 8
    weights = weight_bytes(sizes, bits, kept_bits=bits) - input_table_bytes(sizes, bits)
    found = []
    for batch, times in steps.items():
        caches = _cache_bytes(sizes, batch, config.prompt_tokens, len(times), bits // 8)
        timed, moved = times[WARM_UP_STEPS:], [weights + cache for cache in caches[WARM_UP_STEPS:]]
        achieved = statistics.median(read / seconds for read, seconds in zip(moved, timed, strict=True))
        alone = next(iter(steps.values()))[WARM_UP_STEPS:]
        ratios = [batch / a / (next(iter(steps)) / b) for a, b in zip(timed, alone, strict=True)]
        found.append(
            {
                "batch": batch,
                "tokens_per_second": batch / statistics.median(timed),
                "tokens_per_second_over_first": statistics.median(ratios),
                "time_to_first_token_s": statistics.median(first[batch][1:]),
                "step_seconds_median": statistics.median(timed),
                "weight_bytes_per_step": weights,
                "kv_bytes_per_step": statistics.mean(caches[WARM_UP_STEPS:]),
                "bytes_per_token": statistics.mean(moved) / batch,
                "achieved_bytes_per_second": achieved,
                "copy_bytes_per_second": copy_bytes_per_second,
                "achieved_over_copy": achieved / copy_bytes_per_second,
            }
        )
    return found


def _cache_bytes(sizes: Decoder, batch: int, prompt: int, steps: int, bytes_per_value: int) -> list[float]:
    """Bytes of keys and values that each step reads: those of all tokens so far, with the one it was given."""
    from utilization.inference import kv_bytes_per_token

    return [batch * (prompt + 1 + step) * kv_bytes_per_token(sizes, bytes_per_value) for step in range(steps)]


def _seconds(action: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    action()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def _show(found: list[dict[str, Any]], config: DictConfig) -> None:
    title = f"{config.steps} tokens after {config.prompt_tokens}, {config.dtype}, batches in turn"
    table = Table(title=title, title_justify="left")
    names = ("batch", "tokens/s", f"/ batch {found[0]['batch']}", "first token", "read a step", "GB/s", "/ copying")
    for name in names:
        table.add_column(name, justify="right")
    for row in found:
        read = row["weight_bytes_per_step"] + row["kv_bytes_per_step"]
        table.add_row(
            str(row["batch"]),
            f"{row['tokens_per_second']:,.1f}",
            f"{row['tokens_per_second_over_first']:.2f}",
            f"{row['time_to_first_token_s'] * 1e3:,.1f} ms",
            f"{read / 2**20:,.1f} MiB",
            f"{row['achieved_bytes_per_second'] / 1e9:.2f}",
            f"{row['achieved_over_copy']:.2f}",
        )
    Console().print(table)
    print(f"copying as many bytes as the weights have: {found[0]['copy_bytes_per_second'] / 1e9:.2f} GB/s")
