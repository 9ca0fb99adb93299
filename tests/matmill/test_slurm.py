"""The job script and its submission, with a stand-in for sbatch; tests/slurm/ runs the real one."""

import shlex
import subprocess
from pathlib import Path

import pytest

from matmill import cli


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory whose name needs quoting, and no cluster but ours."""
    work = tmp_path / "my work"
    (work / "bin").mkdir(parents=True)
    (work / "conf").mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("PATH", f"{work / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("PYTHONPATH", "mine")
    return work


def sbatch(folder: Path, script: str) -> None:
    """Put a stand-in for sbatch on the path."""
    file = folder / "bin" / "sbatch"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def test_the_script_asks_for_what_was_composed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Machines, tasks, GPUs, the warning signal, output in the run directory, and the words without the launcher's."""
    words = ["train", "--config-dir", "conf", "launcher=slurm", "launcher.nodes=2", "devices=8", "strategy=ddp"]
    words += ["launcher.time=1-00:00:00", "launcher.submit=false", "launcher.account=us", "run_dir=a run", "seed=3"]
    words += ["launcher.setup=['module load cuda']", "launcher.options=[--exclusive]", "launcher.cpus_per_task=4"]
    assert cli.main(words) == 0
    run = folder / "a run"
    file = run / "slurm" / "job.sh"
    assert capsys.readouterr().out == f"{file}\n"
    lines = file.read_text().splitlines()
    expected = {
        *("--nodes=2", "--ntasks-per-node=8", "--gpus-per-node=8", "--time=1-00:00:00", "--account=us"),
        *("--signal=USR1@120", "--requeue", "--open-mode=append", "--exclusive", "--cpus-per-task=4"),
        f"--output='{run}/slurm/%j.out'",
        f"--chdir='{folder}'",
    }
    options = {line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")}
    assert expected <= options
    assert not [option for option in options if "partition" in option]  # null asks for nothing
    [srun] = [line for line in lines if line.startswith("srun")]
    words = shlex.split(srun)
    assert words[words.index("train") :] == [
        *("train", "devices=8", "strategy=ddp", "seed=3", f"run_dir='{run}'", f"--config-dir={folder}/conf")
    ]
    assert f"export PYTHONPATH='{folder}/mine'" in lines
    assert lines.index("module load cuda") < lines.index(srun)
    assert subprocess.run(["bash", "-n", str(file)]).returncode == 0


def test_no_gpus(folder: Path) -> None:
    """A cluster without GPUs is not asked for zero of them."""
    words = ["train", "launcher=slurm", "launcher.gpus_per_node=0", "launcher.submit=false", "run_dir=out"]
    assert cli.main([*words, "launcher.requeue=false"]) == 0
    text = (folder / "out" / "slurm" / "job.sh").read_text()
    assert "--gpus" not in text
    assert "#SBATCH --no-requeue" in text
    assert "scontrol" not in text


def test_submission(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The job's number is printed; what sbatch refuses is one line; without sbatch the script is left to submit."""
    monkeypatch.setenv("PATH", str(folder / "bin"))
    words = ["train", "launcher=slurm", "run_dir=out"]
    assert cli.main(words) == 0
    assert "there is no sbatch here" in capsys.readouterr().err
    sbatch(folder, 'echo "17;cluster"')
    assert cli.main(words) == 0
    assert capsys.readouterr().out.splitlines()[1] == "job 17"
    sbatch(folder, "echo 'sbatch: error: invalid partition' >&2; exit 1")
    assert cli.main(words) == 2
    assert capsys.readouterr().err == "matmill train: launcher=slurm: sbatch: error: invalid partition\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["launcher=slurm", "launcher.nods=2"], "launcher.nods: unknown key; did you mean launcher.nodes?"),
        (["launcher=slurm", "launcher.nodes=0"], "launcher.nodes: must be greater than or equal to 1"),
        (["launcher=slurm", "devices=auto", "launcher.gpus_per_node=1"], "devices=auto: with launcher=slurm say"),
        (["+launcher.nodes=2"], "launcher.nodes: is a key of launcher=slurm only"),
        (["launcher=slrm"], "launcher=slrm: no such option; did you mean slurm?"),
        (["launcher=slurm", "trainer.max_steps=-1"], "trainer.max_steps: must be greater than 0"),
    ],
)
def test_mistakes_are_found_before_anything_is_submitted(
    words: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole configuration is checked where the user sits, not in the queue."""
    sbatch(folder, "touch submitted")
    assert cli.main(["train", "run_dir=out", *words]) == 2
    assert message in capsys.readouterr().err
    assert not (folder / "submitted").exists()
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("status", "when", "requeued"),
    [("preempted", "now", True), ("preempted", "before", False), ("finished", "now", False), (None, "", False)],
)
def test_what_is_saved_goes_back_to_the_queue(
    status: str | None, when: str, requeued: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a status.json of this very start counts: an old one would requeue a job that fails at once for ever.

    Stand-ins: srun writes the status and exits as it does when it has to end other tasks; scontrol notes its words.
    """
    assert cli.main(["train", "launcher=slurm", "launcher.submit=false", "run_dir=out"]) == 0
    file = folder / "out" / "status.json"
    text = f'{{"status": "{status}"}}'
    if when == "before":
        file.write_text(text)
    write = f"sleep 0.1; echo '{text}' > '{file}'; " if when == "now" else ""
    stand_ins = {"srun": f"{write}exit 143", "scontrol": 'echo "$@" > asked', "sleep": "exec /bin/sleep 0.1"}
    for name, script in stand_ins.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / "bin" / name).chmod(0o755)
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    done = subprocess.run(["bash", str(folder / "out" / "slurm" / "job.sh")], capture_output=True, text=True)
    assert done.returncode == 143
    assert (folder / "asked").exists() is requeued
    if requeued:
        assert (folder / "asked").read_text() == "requeue 17\n"
