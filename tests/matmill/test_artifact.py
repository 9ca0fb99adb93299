"""What can be done with an exported model: generate, evaluate, time, export again, train on."""

import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.matmill.command import TINY, run
from tests.matmill.trained_runs import text_run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny run with an exact export."""
    folder = tmp_path_factory.mktemp("trained")
    directory = text_run(folder)
    result = run(folder, "export", f"run={directory}", "export=safetensors_fp32")
    assert result.status == 0, result.err
    return directory


@pytest.fixture
def artifact(trained: Path) -> Path:
    """Its export."""
    return trained / "exports" / "safetensors_fp32"


def test_it_goes_on_as_the_run_does(trained: Path, artifact: Path, tmp_path: Path) -> None:
    """The likeliest continuation is the same, of several prompts too, up to the context's end, which is said."""
    words = ["prompt=[Doc,The quick brown]", "temperature=0", "max_new_tokens=40"]
    ours, theirs = (
        run(tmp_path, "generate", f"{key}={path}", *words) for key, path in (("run", trained), ("artifact", artifact))
    )
    assert theirs.status == 0, theirs.err
    assert theirs.out == ours.out
    assert "stopped of prompt 1, 2 at the model's context of 32 tokens" in theirs.err
    assert "stopped of prompt 1, 2 at the model's context of 32 tokens" in ours.err


def test_drawing_follows_the_seed(artifact: Path, tmp_path: Path) -> None:
    """The same seed gives the same text, another one another."""
    texts = [
        run(tmp_path, "generate", f"artifact={artifact}", "prompt=Doc", f"seed={seed}", "max_new_tokens=20").out
        for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]


def test_it_scores_as_the_run_does(trained: Path, artifact: Path, tmp_path: Path) -> None:
    """Where the export lies in the run's directory, its data is found by itself."""
    ours, theirs = (
        json.loads(run(tmp_path, "evaluate", f"{key}={path}", "format=json").out)
        for key, path in (("run", trained), ("artifact", artifact))
    )
    assert theirs["samples"] == ours["samples"]
    assert theirs["val_loss"] == pytest.approx(ours["val/loss"], rel=1e-5)


def test_it_is_timed_beside_another(artifact: Path, tmp_path: Path) -> None:
    """A row for each model and batch; the first one is what the others are compared with; a page if it is asked."""
    result = run(
        tmp_path,
        "bench",
        "decode",
        f"artifact=[{artifact},{artifact}]",
        "batch=[1,2]",
        "steps=4",
        "prompt_tokens=8",
        "format=json",
        "plot=speed.html",
    )
    assert result.status == 0, result.err
    rows = json.loads(result.out)
    names = ("safetensors_fp32", "safetensors_fp32 (2)")
    assert [(row["artifact"], row["batch"]) for row in rows] == [(name, batch) for name in names for batch in (1, 2)]
    assert {row["path"] for row in rows} == {str(artifact)}
    assert [row["units_per_second_over_first"] for row in rows[:2]] == [1.0, 1.0]
    assert all(row["bandwidth_utilization"] > 0 and row["memory_bytes"] > 0 for row in rows)
    assert "Decoding" in (tmp_path / "speed.html").read_text()
    result = run(tmp_path, "bench", "decode", f"artifact={artifact}", "steps=4", "prompt_tokens=30")
    assert result.status == 2
    assert "36 tokens; safetensors_fp32 has a context of 32" in result.err


def test_a_model_from_elsewhere_is_exported_bit_for_bit(artifact: Path, tmp_path: Path) -> None:
    """A Hugging Face directory takes the place of a run; its own tokenizer settings stay."""
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(artifact, elsewhere)
    (elsewhere / "export.json").unlink()
    words = ["export=safetensors_fp32", "score_samples=4"]
    result = run(tmp_path, "export", f"run={elsewhere}", *words)
    assert result.status == 0, result.err
    again = tmp_path / "exports" / "elsewhere" / "safetensors_fp32"
    first, second = (load_file(path / "model.safetensors") for path in (artifact, again))
    assert first.keys() == second.keys()
    assert all(first[name].equal(second[name]) for name in first)
    assert json.loads((again / "tokenizer_config.json").read_text())["split_special_tokens"] is True
    assert "exports/elsewhere/safetensors_fp32" in result.out


def test_a_model_from_elsewhere_is_trained_on(trained: Path, artifact: Path, tmp_path: Path) -> None:
    """`model=pretrained` takes the sizes from the files; before its first step it scores as the export does."""
    texts = trained.parent / "texts"
    words = [word for word in TINY if not word.startswith(("model", "data.tokenizer", "trainer.max_steps"))]
    words += ["data=text", f"data.path={texts}", f"data.tokenizer={artifact}", f"cache_dir={tmp_path / 'cache'}"]
    words += ["model=pretrained", f"model.weights={artifact}", "logger=csv"]
    result = run(tmp_path, "train", "run_dir=on", "trainer.max_steps=1", "optimizer.lr=1e-9", *words)
    assert result.status == 0, result.err
    on = json.loads(run(tmp_path, "evaluate", "run=on", "format=json").out)
    before = json.loads(run(tmp_path, "evaluate", f"run={trained}", "format=json").out)
    assert on["val/loss"] == pytest.approx(before["val/loss"], rel=1e-4)
    result = run(tmp_path, "train", "run_dir=other", "trainer.max_steps=1", "model.n_layers=3", *words)
    assert result.status == 2
    assert "model.n_layers=3 does not fit model.weights=" in result.err


class Payload:
    """Leaves a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.file,))


@pytest.mark.parametrize("command", ["generate", "evaluate"])
def test_nothing_that_lies_beside_the_weights_is_run(command: str, artifact: Path, tmp_path: Path) -> None:
    """Pickles in every place where a library might look, and code that config.json asks for, stay untouched."""
    planted, mark = tmp_path / "planted", tmp_path / "ran"
    shutil.copytree(artifact, planted)
    (planted / "model.safetensors").unlink()
    for name in ("pytorch_model.bin", "model.pt", "training_args.bin", "optimizer.pt", "model.safetensors.bin"):
        (planted / name).write_bytes(pickle.dumps(Payload(mark)))
    config = json.loads((planted / "config.json").read_text())
    config["auto_map"] = {"AutoModelForCausalLM": "evil.Evil", "AutoConfig": "evil.EvilConfig"}
    (planted / "config.json").write_text(json.dumps(config))
    (planted / "evil.py").write_text(f"open({str(mark)!r}, 'w')\n")
    result = run(tmp_path, command, f"artifact={planted}", *(["prompt=a"] if command == "generate" else []))
    assert result.status != 0
    assert not mark.exists()


@pytest.mark.parametrize("command", ["generate", "evaluate", "bench"])
def test_a_damaged_artifact_is_named(command: str, artifact: Path, tmp_path: Path) -> None:
    """A file that is gone or cut is said in one line with its name, the same for every command."""
    extra = {"generate": ["prompt=a"], "evaluate": [], "bench": ["decode"]}[command]
    for name, cut, message in (
        ("tokenizer.json", None, "tokenizer.json is missing; export it again"),
        ("model.safetensors", 1000, "model.safetensors is damaged: it has "),
    ):
        damaged = tmp_path / f"without_{name}"
        shutil.copytree(artifact, damaged)
        if cut is None:
            (damaged / name).unlink()
        else:
            (damaged / name).write_bytes((damaged / name).read_bytes()[:-cut])
        result = run(tmp_path, command, f"artifact={damaged}", *extra)
        assert result.status == 2
        assert message in result.err
        assert len(result.err.splitlines()) == 1


COMMANDS = {"generate": ["prompt=a"], "evaluate": [], "bench": ["decode", "steps=4", "prompt_tokens=8"]}


def _said(folder: Path, artifact: Path, *more: str) -> set[tuple[int, str]]:
    """Exit status and message, without the command's name, of every command that takes an artifact."""
    found = set()
    for command, words in COMMANDS.items():
        result = run(folder, command, *words, f"artifact={artifact}", *more)
        found.add((result.status, result.err.removeprefix(f"matmill {command}: ")))
    return found


def test_the_same_mistake_is_told_in_the_same_words(trained: Path, artifact: Path, tmp_path: Path) -> None:
    """A path that is nothing, a run in place of its export, files that the runtime refuses: told alike everywhere."""
    assert _said(tmp_path, tmp_path / "nowhere") == {(2, f"artifact={tmp_path / 'nowhere'}: not there\n")}
    (told,) = _said(tmp_path, trained)
    assert told[0] == 2
    assert told[1].endswith("no export (it has no export.json); exports/NAME is wanted, there are: safetensors_fp32\n")
    refused = trained / "exports" / "refused"
    shutil.copytree(artifact, refused)
    (refused / "model.safetensors").write_bytes(b"\0" * (refused / "model.safetensors").stat().st_size)
    (told,) = _said(tmp_path, refused)
    shutil.rmtree(refused)
    assert told[0] == 2
    assert f"artifact={refused}: transformers cannot load or run the model: SafetensorError: " in told[1]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_mistake_is_found_before_anything_slow_is_imported(command: str, tmp_path: Path) -> None:
    """A wrong path is no matter of seconds; the same of a misspelt export or a run that is not there."""
    words = [command, *COMMANDS[command], "artifact=nowhere"]
    for arguments in (words, ["export", "run=nowhere", "export=gguf_q8_0"], ["export", "run=.", "export=gguf_q8"]):
        code = f"import sys, matmill.cli; sys.exit(matmill.cli.main({arguments!r}) + 100 * ('torch' in sys.modules))"
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 2, done.stderr


def test_only_runtimes_of_this_project_are_used(artifact: Path, tmp_path: Path) -> None:
    """export.json comes with the artifact: what it names is not imported; and it must be there, and be whole."""
    planted = tmp_path / "planted"
    shutil.copytree(artifact, planted)
    figures = json.loads((planted / "export.json").read_text())
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')\n")
    for content, message in (
        (json.dumps({**figures, "runtime": "evil.Runtime"}), "names the runtime evil.Runtime, which is none of"),
        (json.dumps({**figures, "runtime": "export.pipeline.shutil"}), "leads into shutil, which is not an allowed"),
        (json.dumps({**figures, "runtime": "export.pipeline.export"}), "is no runtime"),
        (json.dumps({"runtime": "export.x.Y"}), "export.json lacks kind"),
        ("{", "export.json is not readable"),
        ("[]", "export.json holds no figures"),
        (json.dumps({**figures, "files": [], "bytes": "1"}), "export.json is damaged in bytes, files"),
        (json.dumps({**figures, "files": {"a": "1"}}), "export.json is damaged in files"),
        (json.dumps({**figures, "kind": []}), "export.json is damaged in kind"),
        (json.dumps({**figures, "files": {"../x": 1}}), "export.json names a file outside: ../x"),
    ):
        (planted / "export.json").write_text(content)
        result = run(tmp_path, "generate", f"artifact={planted}", "prompt=a")
        assert result.status == 2
        assert message in result.err
    result = run(tmp_path, "generate", "prompt=a")
    assert "set one of them: run=RUN or artifact=RUN/exports/NAME" in result.err
