"""`matmill train` from the outside: what it leaves, what it refuses, how it ends."""

import csv
import fcntl
import json
import math
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from matmill import train
from strategies.checkpoint import load_meta
from tests.matmill.command import TINY, change, run

DOCUMENTS = "".join(f"Document {n}: the quick brown fox number {n * n} jumps.\n" * 8 + "\0" for n in range(40))


PROMISED = {
    *("status", "steps", "train_loss", "val_loss", "val_bits_per_byte", "tokens_per_second", "model_flops_per_token"),
    *("flops_formula", "achieved_flops_per_second", "peak_flops_per_second", "peak_source", "mfu", "hfu", "goodput"),
    *("data_wait_fraction", "peak_memory_bytes", "checkpoint", "parameters", "world_size", "precision", "strategy"),
    *("wall_seconds", "time_parts", "step_seconds", "ideal_time_utilization", "memory_by_part", "allocator_retries"),
    *("power_watts", "power_source", "energy_joules", "joules_per_token", "cost", "lost_seconds", "interruptions"),
    "mean_time_between_interruptions_s",
}


@pytest.fixture
def text(tmp_path: Path) -> str:
    """A folder of forty small texts, as an override."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for number, document in enumerate(DOCUMENTS.split("\0")[:-1]):
        (folder / f"{number}.txt").write_text(document)
    return f"data.path={folder}"


@pytest.fixture
def tiny(text: str) -> list[str]:
    """The words of a command that trains a tiny transformer on the texts."""
    return ["train", "data=text", text, *TINY, "run_dir=out", "cache_dir=cache"]


def test_leaves_what_the_readme_lists(tmp_path, tiny):
    """Config, checkpoint, metrics, summary with every promised key, status, data; finished runs stay as they are."""
    result = run(tmp_path, *tiny)
    assert result.status == 0, result.err
    out = tmp_path / "out"
    summary = json.loads((out / "summary.json").read_text())
    assert not [key for key in PROMISED if key not in summary]
    assert summary["status"] == "finished"
    assert summary["steps"] == 4
    assert summary["peak_flops_per_second"] == 1e11
    assert summary["mfu"] == pytest.approx(summary["achieved_flops_per_second"] / 1e11)
    assert (out / summary["checkpoint"] / "meta.pt").is_file()
    assert json.loads((out / "status.json").read_text())["status"] == "finished"
    with (out / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["1", "2", "3", "4"]
    for left in ("config.yaml", "ledger.jsonl", "data/tokenizer.json", "tensorboard"):
        assert (out / left).exists(), left

    again = run(tmp_path, *tiny)
    assert again.status == 0
    assert "is finished: 4 of 4 steps" in again.err
    longer = run(tmp_path, *change(tiny, "trainer.max_steps=6"))
    assert longer.status == 0
    assert load_meta(out / "checkpoints" / "step-00000006")["global_step"] == 6


def test_a_run_killed_before_its_summary_is_closed_late(tmp_path, tiny):
    """Killed after its last step but before its summary: the next start evaluates it and closes it."""
    assert run(tmp_path, *tiny).status == 0
    before = json.loads((tmp_path / "out" / "summary.json").read_text())
    (tmp_path / "out" / "summary.json").unlink()
    (tmp_path / "out" / "status.json").write_text('{"status": "running", "step": 0}')
    result = run(tmp_path, *tiny)
    assert result.status == 0, result.err
    after = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert after["steps"] == 4
    assert after["val_loss"] == pytest.approx(before["val_loss"], rel=1e-6)
    assert json.loads((tmp_path / "out" / "status.json").read_text())["status"] == "finished"


def test_same_seed_same_run_other_seed_another(tmp_path, tiny):
    """Two runs with one seed give equal losses bit for bit; another seed gives others."""
    losses = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert run(tmp_path, *change(tiny, f"run_dir={name}", f"seed={seed}")).status == 0
        losses.append(json.loads((tmp_path / name / "summary.json").read_text())["val_loss"])
    assert losses[0] == losses[1] != losses[2]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.d_model=64", "was started with model.d_model=32, now it is 64"),
        ("data.sequence_length=16", "was started with data.sequence_length=32"),
        ("seed=9", "was started with seed=0"),
        ("resume=never", "resume=never, but"),
        ("resume=nowhere", "resume=nowhere: neither a checkpoint nor a run directory"),
    ],
)
def test_a_run_directory_is_one_run(tmp_path, tiny, override, message):
    """Another model, data, seed or a fresh start in a used directory is refused in one line, nothing lost."""
    assert run(tmp_path, *tiny).status == 0
    result = run(tmp_path, *change(tiny, override, "trainer.max_steps=8"))
    assert result.status == 2
    assert message in result.err
    assert len(result.err.splitlines()) == 1
    assert json.loads((tmp_path / "out" / "status.json").read_text())["status"] == "finished"


def test_a_damaged_checkpoint_is_set_aside(tmp_path, tiny):
    """Resuming goes on from the newest intact checkpoint, says so, and ends as if nothing had been damaged."""
    words = change(tiny, "checkpoint.every_steps=1", "schedule=constant")
    assert run(tmp_path, *change(words, "run_dir=whole", "trainer.max_steps=6")).status == 0
    assert run(tmp_path, *words).status == 0
    newest = tmp_path / "out" / "checkpoints" / "step-00000004"
    [path] = newest.glob("*.distcp")
    path.write_bytes(path.read_bytes()[:-100])
    result = run(tmp_path, *change(words, "trainer.max_steps=6"))
    assert result.status == 0, result.err
    assert "step-00000004 is damaged" in result.err
    assert "continues after step 3 of 6" in result.err
    losses = [json.loads((tmp_path / name / "summary.json").read_text())["val_loss"] for name in ("whole", "out")]
    assert losses[0] == losses[1]
    assert not list(newest.parent.glob("damaged-*"))  # nobody asked for it before the run was finished
    newest = tmp_path / "out" / "checkpoints" / "step-00000006"
    (newest / "meta.pt").write_bytes(b"")
    refused = run(tmp_path, "evaluate", "run=out", "checkpoint=latest")
    assert refused.status == 2
    assert "step-00000006 is damaged: meta.pt" in refused.err


def test_a_run_without_an_intact_checkpoint_does_not_start_anew(tmp_path, tiny):
    """If every checkpoint is damaged nothing is renamed or written over: the user decides."""
    assert run(tmp_path, *tiny).status == 0
    metrics = (tmp_path / "out" / "metrics.csv").read_bytes()
    checkpoints = tmp_path / "out" / "checkpoints"
    for path in checkpoints.glob("step-*/meta.pt"):
        path.write_bytes(b"")
    before = sorted(path.name for path in checkpoints.iterdir())
    result = run(tmp_path, *change(tiny, "trainer.max_steps=6"))
    assert result.status == 2
    assert "no checkpoint of this run is intact" in result.err
    assert sorted(path.name for path in checkpoints.iterdir()) == before
    assert (tmp_path / "out" / "metrics.csv").read_bytes() == metrics


def test_a_busy_directory_is_refused(tmp_path, tiny):
    """Two processes never train in one directory."""
    (tmp_path / "out").mkdir()
    with (tmp_path / "out" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = run(tmp_path, *tiny)
    assert result.status == 2
    assert "another process is training in this directory" in result.err


def test_diverged_run_stops_and_keeps_the_last_good_checkpoint(tmp_path, tiny):
    """A loss that is not finite ends the run with a line, status 1 and a finite newest checkpoint."""
    words = change(tiny, "trainer.max_steps=60", "optimizer.lr=1e25", "trainer.gradient_clip_norm=null")
    result = run(tmp_path, *words, "schedule=constant", "checkpoint.every_steps=1")
    assert result.status == 1
    assert "not finite" in result.err
    assert "Traceback" not in result.err
    status = json.loads((tmp_path / "out" / "status.json").read_text())
    assert status["status"] == "failed"
    assert "Traceback" in (tmp_path / "out" / "error.log").read_text()
    with (tmp_path / "out" / "metrics.csv").open() as file:
        assert all(math.isfinite(float(row["train/loss"])) for row in csv.DictReader(file))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.vocab_size=100", "model.vocab_size=100 does not fit the data, whose vocab_size is 257"),
        ("data.global_batch_size=100000", "fewer than one batch"),
        ("data.sequence_length=1000000", "sequence_length"),
        ("data.path=nowhere", "nowhere"),
        ("trainer.max_epochs=1", "exactly one of trainer.max_steps and trainer.max_epochs"),
        ("optimizer.lr=-1", "optimizer.lr: must be greater than or equal to 0, got -1"),
        ("model.n_heads=3", "model.d_model=32 is not divisible by model.n_heads=3"),
        ("devices=2", "needs a strategy over several devices"),
        ("data.micro_batch_size=8", "data.micro_batch_size=8 is larger than data.global_batch_size=4"),
        ("resume=nowhere", "resume=nowhere: neither a checkpoint nor a run directory"),
        ("run_dir=texts/0.txt", "0.txt: is a file, not a directory"),
    ],
)
def test_settings_that_cannot_work_end_at_start(tmp_path, tiny, override, message):
    """Sizes that do not fit are named in one line before anything is trained or written."""
    result = run(tmp_path, *change(tiny, override))
    assert result.status == 2
    assert message in result.err
    assert len(result.err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_failure_after_a_signal_is_an_interruption(capsys):
    """A signal to the whole process group ends compilers too; what then fails is no failure of the run."""

    def fail() -> None:
        raise RuntimeError("the compiler's process was killed")

    trainer = SimpleNamespace(fit=fail)
    with pytest.raises(SystemExit) as left:
        train._fit(trainer, SimpleNamespace(signal=signal.SIGTERM))
    assert left.value.code == 130
    assert "interrupted by a signal: RuntimeError: the compiler's process was killed" in capsys.readouterr().err
    with pytest.raises(RuntimeError, match="compiler"):
        train._fit(trainer, SimpleNamespace(signal=0))


OWN = """
import lightning.pytorch as L, torch
from torch.utils.data import DataLoader, TensorDataset

class Plain(L.LightningModule):
    def __init__(self, *, width: int):
        super().__init__()
        self.layer = torch.nn.Linear(4, width)
    def training_step(self, batch, batch_idx):
        loss = self.layer(batch[0]).square().mean()
        self.log("train/loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

class Numbers(L.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.ones(64, 4)), batch_size=8)
"""


def test_a_users_own_module_and_data_train(tmp_path, monkeypatch):
    """A package outside the repository, by --config-dir and allow_targets; automatic optimization, its own loader."""
    (tmp_path / "own_package.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    options = {"model": "_target_: own_package.Plain\nwidth: 3", "data": "_target_: own_package.Numbers"}
    for group, content in options.items():
        (tmp_path / "conf" / group).mkdir(parents=True)
        (tmp_path / "conf" / group / "mine.yaml").write_text(content)
    words = ["train", "--config-dir", "conf", "model=mine", "data=mine", "trainer.max_steps=12", "run_dir=out"]
    refused = run(tmp_path, *words)
    assert refused.status == 2
    assert "own_package" in refused.err
    words += ["allow_targets=[own_package]", "checkpoint.monitor=train/loss", "hardware.peak_flops=1e11"]
    result = run(tmp_path, *words)
    assert result.status == 0, result.err
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["steps"] == 12
    more = run(tmp_path, *change(words, "trainer.max_steps=20"))
    assert more.status == 0, more.err
    assert load_meta(tmp_path / "out" / "checkpoints" / "step-00000020")["global_step"] == 20
