"""The text of ``--help``: reads the first comment of the experiment files and imports nothing heavy."""

from __future__ import annotations

from pathlib import Path

CONF_DIR = Path(__file__).resolve().parent.parent / "conf"

USAGE = "usage: matmill COMMAND [key=value ...] [-m] [--config-dir DIR] [--help] [--version]"

COMMANDS = {
    "train": "train an experiment; -m runs every combination of values, or searches them with hydra/sweeper=optuna",
    "plan": "say what a run should cost before it runs; -m compares every combination",
    "config": "print the composed configuration and where each value comes from",
    "generate": "continue a prompt with a trained or an exported language model",
    "evaluate": "score a run's checkpoint, or an exported model, on its validation data",
    "export": "write a run's model in other formats, reload each in its own runtime and score it",
    "report": "one HTML page of a run, of several, or of a sweep: matmill report RUN ...",
    "bench": "measure: bench train | hardware | predict | data | decode | overhead | parity | recompute | coordinates",
}
KEYS = {
    "experiment=NAME": "a complete experiment (listed below)",
    "model=NAME": "the network and its module",
    "data=NAME": "the data set; data.path=PATH for your own",
    "data.global_batch_size=N": "samples per optimizer step over all devices",
    "data.micro_batch_size=N": "samples per device and forward pass; accumulation follows",
    "optimizer.lr=X": "learning rate",
    "precision=NAME": "{precision}",
    "strategy=NAME": "{strategy}",
    "devices=N": "devices to use, or auto",
    "launcher=slurm": "submit the run as a job of SLURM",
    "trainer.max_steps=N": "optimizer steps to train",
    "checkpoint.every_steps=N": "steps between checkpoints",
    "resume=auto|never|PATH": "continue the run directory, start afresh, or from a checkpoint",
    "run_dir=DIR": "where this run is written",
    "sweep_dir=DIR": "where -m writes its runs; the same command goes on with what is there",
    "hydra/sweeper=optuna": "with -m: search choice(a,b), range(1,9), interval(0,1), tag(log,interval(1e-4,1e-1))",
    "sweep.n_trials=N": "trials of a search in all, over restarts and workers",
    "sweep.parallel=N": "runs of -m at once, or auto: one on each GPU or core",
    "sweep/sampler=NAME": "{sampler}",
    "sweep/pruner=NAME": "{pruner}",
    "seed=N": "seed of everything random",
    "debug=true": "show the traceback of an error",
}
EXAMPLES = {
    "train": [
        "matmill train",
        "matmill train experiment=alexnet_mnist seed=1",
        "matmill train -m optimizer.lr=1e-4,1e-3",
        "matmill train -m hydra/sweeper=optuna 'optimizer.lr=tag(log,interval(1e-4,1e-1))' sweep_dir=runs/lr",
    ],
    "config": ["matmill config experiment=alexnet_mnist optimizer.lr=1e-4"],
    "plan": [
        "matmill plan",
        "matmill plan model=llama3_8b hardware=h100_sxm strategy=fsdp devices=8 data.global_batch_size=8 "
        "data.micro_batch_size=1 tokens=1e12",
        "matmill plan -m model=llama3_8b hardware=h100_sxm,h200,b200",
    ],
    "export": [
        "matmill export run=runs/mine export=gguf_q8_0",
        "matmill export run=runs/mine export=auto target=laptop",
        "matmill export run=models/llama export=gguf_q4_k_m text=my_texts/",
    ],
    "report": ["matmill report runs/mine", "matmill report runs/sweeps/mine output=sweep.html"],
    "bench": ["matmill bench train", "matmill bench train model=transformer_30m 'against=[bare,transformers]'"],
}


def help_text(command: str | None, config_dir: str | None = None) -> str:
    """What ``matmill --help`` (or, with a command, ``matmill COMMAND --help``) prints."""
    lines = [USAGE if command is None else USAGE.replace("COMMAND", command), ""]
    if command is None:
        lines += ["commands", *_columns(COMMANDS), ""]
    else:
        lines += [COMMANDS[command], ""]
    if command in (None, "train", "config"):
        groups = {
            "precision": "precision",
            "strategy": "strategy",
            "sampler": "sweep/sampler",
            "pruner": "sweep/pruner",
        }
        options = {name: ", ".join(_options(group, config_dir)) for name, group in groups.items()}
        keys = {key: text.format(**options) for key, text in KEYS.items()}
        lines += ["common keys", *_columns(keys), "", "experiments", *_columns(described("experiment", config_dir)), ""]
    else:
        primary = CONF_DIR / f"{'export_run' if command == 'export' else command}.yaml"
        lines += ["keys", *_columns(_documented_keys(primary)), ""]
    if command == "export":
        lines += ["exports", *_columns(described("export", config_dir)), ""]
    if command in EXAMPLES:
        lines += ["examples", *(f"  {example}" for example in EXAMPLES[command]), ""]
    return "\n".join([*lines, "matmill config shows every key with its value."])


def described(group: str, config_dir: str | None = None) -> dict[str, str]:
    """Name and first comment line of every file of a config group, shipped ones and those of `config_dir`."""
    found: dict[str, str] = {}
    for folder in (CONF_DIR, *([Path(config_dir)] if config_dir else [])):
        for file in sorted((folder / group).glob("*.yaml")):
            comments = (line.lstrip("# ").strip() for line in _lines(file) if line.startswith("#"))
            found[file.stem] = next((line for line in comments if line and not line.startswith("@package")), "")
    return found


def _options(group: str, config_dir: str | None) -> list[str]:
    """Names of the files of a config group."""
    folders = (CONF_DIR, *([Path(config_dir)] if config_dir else []))
    return sorted({file.stem for folder in folders for file in (folder / group).glob("*.yaml")})


def _documented_keys(file: Path) -> dict[str, str]:
    """Top-level ``key: value  # what it is`` lines of a primary config."""
    keys: dict[str, str] = {}
    for line in _lines(file) if file.is_file() else []:
        name, colon, rest = line.partition(":")
        if colon and name.isidentifier() and name != "defaults":
            value, _, comment = rest.partition(" # ")
            keys[f"{name}={value.strip()}"] = comment.strip()
    return keys


def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8", errors="replace").splitlines()


def _columns(rows: dict[str, str]) -> list[str]:
    width = max((len(name) for name in rows), default=0)
    return [f"  {name:<{width}}  {text}".rstrip() for name, text in rows.items()]
