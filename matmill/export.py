"""`matmill export`: a run's model in other formats, each reloaded and scored before it counts as exported."""

from __future__ import annotations

import logging
import signal
import sys
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, Gt, MinLen
from omegaconf import DictConfig

from matmill.errors import ConfigError, describe, one_line
from matmill.export_table import show
from matmill.schema import check
from matmill.targets import build
from matmill.values import Target

if TYPE_CHECKING:
    from export.exporter import Exporter
    from export.source import Source


@dataclass(kw_only=True)
class Export:
    """The settings of the command."""

    run: Annotated[str, MinLen(1)]
    export: dict[str, Target]
    choice: Literal["auto", "all"] | None
    target: Literal["server_gpu", "laptop", "phone", "browser"] | None
    prefer: Literal["bytes", "speed"]
    max_bytes: Annotated[float, Gt(0)] | None
    checkpoint: str
    max_loss_increase: Annotated[float, Ge(0)] | None
    skip: list[str]
    qat_steps: Annotated[int, Ge(0)]
    qat_lr: Annotated[float, Gt(0)]
    score_samples: Annotated[int, Gt(0)] | None
    text: Annotated[str, MinLen(1)] | None
    output: Annotated[str, MinLen(1)] | None
    allow_targets: list[str]
    debug: bool


def run(config: DictConfig) -> int:
    """Export what `config` says and print a table; 1 if any export failed.

    Raises:
        ConfigError: a setting is wrong, or there is no such export of the run's network.
    """
    check(config, Export, supplied=(), filled=())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what is half-written is removed
    if config.choice == "auto":
        from matmill.export_choice import choose

        return choose(config)
    for key in ("target", "max_bytes"):
        if config[key] is not None:
            raise ConfigError(f"{key}: is a key of export=auto only")
    if not config.export and config.choice is None:
        raise ConfigError("export: name at least one, or export=all, or export=auto")
    from export.layers import named_layers
    from matmill.source import load_source

    exporters: dict[str, Exporter] = build(config.export, list(config.allow_targets))
    for name, exporter in exporters.items():
        if (reason := exporter.unavailable()) is not None:
            raise ConfigError(f"export={name}: {reason}")
    quiet_exporters()
    source = load_source(config.run, config.checkpoint, config.score_samples, config.text)
    for name, exporter in exporters.items():
        if not exporter.supports(source):
            raise ConfigError(_refusal(name, source))
    try:
        named_layers(source.network, config.skip)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if config.choice == "all":
        exporters = _all(source) | exporters
    if config.qat_steps:
        _check_fine_tuning(exporters, config)
    target = exports_directory(config, source)
    done = {name: export_one(name, exporter, source, target, config) for name, exporter in exporters.items()}
    show(done, target)
    return int(any(isinstance(result, str) for result in done.values()))


def quiet_exporters() -> None:
    """Keep libraries' hints about what exporters do on purpose out of the user's terminal."""
    from matmill.assemble import quiet_libraries

    quiet_libraries()
    warnings.filterwarnings("ignore", module=r"torch\.onnx|torchao|transformers|bitsandbytes|executorch")
    logging.getLogger("torch.utils._pytree").setLevel(logging.ERROR)


def _all(source: Source) -> dict[str, Exporter]:
    """Every shipped export of such a network that can be made here; it is said why others cannot."""
    from matmill.export_choice import shipped

    found = {name: exporter for name, exporter in shipped().items() if exporter.supports(source)}
    reasons = {name: exporter.unavailable() for name, exporter in found.items()}
    for name, reason in reasons.items():
        if reason is not None:
            say(f"{name}: left out: {reason}")
    return {name: exporter for name, exporter in found.items() if reasons[name] is None}


def exports_directory(config: DictConfig, source: Source) -> Path:
    """Where exports are written: `output`, or the run's exports/, or exports/NAME here for a model from elsewhere."""
    if config.output is not None:
        return Path(config.output).absolute()
    run = Path(config.run)
    return run.absolute() / "exports" if (run / "config.yaml").is_file() else Path("exports", source.name).absolute()


def export_one(name: str, exporter: Exporter, source: Source, target: Path, config: DictConfig) -> dict[str, Any] | str:
    """One export into `target`/`name`: its figures, or why it failed in a line."""
    from export.exporter import ExportError
    from export.pipeline import export

    # Of many, those that quantize nothing have nothing to skip; one that was asked for by name is told so.
    skip = () if config.choice == "all" and not exporter.quantizes else config.skip
    try:
        if config.qat_steps:
            source = _fine_tuned(name, exporter, source, config)
        say(f"{name}: writing, reloading and scoring")
        return export(source, name, exporter, target / name, config.max_loss_increase, skip)
    except Exception as error:  # whatever a format's library raises; the other exports are still made
        if config.debug:
            raise
        return one_line(error) if isinstance(error, ExportError) else describe(error)


def _check_fine_tuning(exporters: dict[str, Exporter], config: DictConfig) -> None:
    for name, exporter in exporters.items():
        if exporter.quantization_aware() is None:
            raise ConfigError(f"qat_steps: there is no fine-tuning with the quantization of export={name}")
    if not (Path(config.run) / "config.yaml").is_file():
        raise ConfigError("qat_steps: only a run of matmill's can be trained on; its data belongs to it")


def _fine_tuned(name: str, exporter: Exporter, source: Source, config: DictConfig) -> Source:
    """The source with weights that were trained on for `qat_steps` under the export's quantization."""
    from export.layers import named_layers
    from matmill import held_out
    from matmill.export_source import standard
    from matmill.qat import fine_tune

    quantization = exporter.quantization_aware()
    assert quantization is not None  # checked before the first was made
    say(f"{name}: fine-tuning with quantization, {config.qat_steps} steps")
    trained = held_out.load(config.run, config.checkpoint, ten_crop=False)
    skip = named_layers(source.network, config.skip)
    network = fine_tune(trained, quantization, config.qat_steps, config.qat_lr, skip)
    return replace(source, network=standard(network), trained=source.network, qat_steps=config.qat_steps)


def _refusal(name: str, source: Source) -> str:
    """One line that says which of the shipped exports there are for such a network."""
    from matmill.export_choice import shipped

    fitting = [other for other, exporter in shipped().items() if exporter.supports(source)]
    network = type(source.network).__name__
    return f"export={name}: does not take {network} ({source.kind}); there are: {', '.join(fitting) or 'none'}"


def say(text: str) -> None:
    """A remark on standard error."""
    print(text, file=sys.stderr, flush=True)
