"""`matmill export`: a run's model in other formats, each reloaded and scored before it counts as exported."""

from __future__ import annotations

import logging
import signal
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from matmill.errors import ConfigError, describe, one_line
from matmill.export_settings import Export, check_before_imports
from matmill.export_table import show
from matmill.schema import check
from matmill.source import is_run, load_source
from matmill.targets import build

if TYPE_CHECKING:
    from export.exporter import Exporter
    from export.source import Source


NO_FINE_TUNING = "has no quantization that could be trained with"
"""Why an export is refused, or left out of all, where `qat_steps` are asked for."""


def run(config: DictConfig) -> int:
    """Export what `config` says and print a table; 1 if any export failed.

    Raises:
        ConfigError: a setting is wrong, or there is no such export of the run's network.
    """
    check_before_imports(config)
    check(config, Export, supplied=(), filled=())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what is half-written is removed
    if config.choice == "auto":
        from matmill.export_choice import choose

        return choose(config)
    from export.layers import named_layers

    exporters: dict[str, Exporter] = build(config.export, list(config.allow_targets))
    for name, exporter in exporters.items():
        if (reason := exporter.unavailable()) is not None:
            raise ConfigError(f"export={name}: {reason}")
        if config.skip and not exporter.quantizes:
            raise ConfigError(f"skip: export={name} quantizes nothing that could be skipped; export it without")
        if config.qat_steps and exporter.quantization_aware() is None:
            raise ConfigError(f"qat_steps: export={name} {NO_FINE_TUNING}")
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
        exporters = _all(source, config) | exporters
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


def _all(source: Source, config: DictConfig) -> dict[str, Exporter]:
    """Every shipped export of such a network that can be made here; it is said why others cannot."""
    from matmill.export_choice import shipped

    found = {name: exporter for name, exporter in shipped().items() if exporter.supports(source)}
    reasons = {name: exporter.unavailable() for name, exporter in found.items()}
    if config.qat_steps:
        reasons |= {name: NO_FINE_TUNING for name in found if found[name].quantization_aware() is None}
    for name, reason in reasons.items():
        if reason is not None:
            say(f"{name}: left out: {reason}")
    return {name: exporter for name, exporter in found.items() if reasons[name] is None}


def exports_directory(config: DictConfig, source: Source) -> Path:
    """Where exports are written: `output`, or the run's exports/, or exports/NAME here for a model from elsewhere."""
    if config.output is not None:
        return Path(config.output).absolute()
    return (Path(config.run, "exports") if is_run(config.run) else Path("exports", source.name)).absolute()


def export_one(name: str, exporter: Exporter, source: Source, target: Path, config: DictConfig) -> dict[str, Any] | str:
    """One export into `target`/`name`: its figures, or why it failed in a line."""
    from export.exporter import ExportError
    from export.pipeline import export

    skip = config.skip if exporter.quantizes else ()
    try:
        if config.qat_steps:
            source = _fine_tuned(name, exporter, source, config)
        say(f"{name}: writing, reloading and scoring")
        return export(source, name, exporter, target / name, config.max_loss_increase, skip)
    except Exception as error:  # whatever a format's library raises; the other exports are still made
        if config.debug:
            raise
        return one_line(error) if isinstance(error, ExportError) else describe(error)


def _fine_tuned(name: str, exporter: Exporter, source: Source, config: DictConfig) -> Source:
    """The source with weights that were trained on for `qat_steps` under the export's quantization."""
    from export.layers import named_layers
    from matmill import held_out
    from matmill.export_source import standard
    from matmill.qat import fine_tune

    quantization = exporter.quantization_aware()
    assert quantization is not None  # such are refused or left out before
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
