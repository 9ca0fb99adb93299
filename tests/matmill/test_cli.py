"""The command line as a user meets it: help without torch, errors in a line, exit statuses, jobs of -m."""

import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from matmill import cli
from matmill.errors import ConfigError

ROOT = Path(cli.__file__).parent.parent


def matmill(*words: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run matmill in a fresh process that finds it and what `environment` adds, but not the cwd."""
    path = os.pathsep.join([str(ROOT), *filter(None, [environment.pop("PYTHONPATH", "")])])
    return subprocess.run(
        [sys.executable, "-P", "-m", "matmill", *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("words", [["--help"], *([command, "--help"] for command in sorted(cli.COMMANDS))])
def test_help_imports_nothing_heavy(words: list[str], tmp_path: Path) -> None:
    """Help is printed by a process that has imported neither torch nor Lightning, Hydra or pydantic."""
    code = (
        "import sys; from matmill.cli import main; status = main(sys.argv[1:]); "
        "heavy = {'torch', 'lightning', 'hydra', 'omegaconf', 'pydantic', 'numpy'} & set(sys.modules); "
        "print('HEAVY', sorted(heavy)); sys.exit(status)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stderr
    assert "usage: matmill" in found.stdout
    assert "HEAVY []" in found.stdout


def test_help_lists_experiments_with_their_first_comment(
    conf: Path, capsys: pytest.CaptureFixture[str], tree: Callable[[str, dict[str, str]], Path]
) -> None:
    """Shipped experiments and those of --config-dir are listed, each with its first comment."""
    mine = tree("mine", {"experiment/own.yaml": "# @package _global_\n# My own\nseed: 1"})
    assert cli.main(["train", "--help", "--config-dir", str(mine)]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "big A wider one" in lines
    assert "own My own" in lines


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """--version prints the name and version."""
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("matmill ")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["trian"], "matmill: trian: unknown command; did you mean train?"),
        (["--hlep"], "matmill: --hlep: unknown option; did you mean --help?"),
        (["config", "-m"], "matmill config: -m: only train, plan and bench predict take several values"),
        (["config", "--config-dir", "no/dir"], "matmill config: --config-dir no/dir: no such directory"),
        (["config", "--config-dir"], "matmill config: --config-dir: needs a directory"),
        (["train", "modle=wide"], "matmill train: modle: unknown key; did you mean model?"),
    ],
)
def test_usage_errors(words: list[str], line: str, conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong usage is one line on standard error and exit status 2."""
    assert cli.main(words) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", line + "\n")


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (ConfigError("a.b: wrong"), 2, "a.b: wrong"),
        (ValueError("no full batch"), 1, "no full batch"),
        (KeyError("n_layers"), 1, "KeyError: 'n_layers'"),
        (ZeroDivisionError("division by zero"), 1, "ZeroDivisionError: division by zero"),
        (RuntimeError(), 1, "RuntimeError"),
        (FileNotFoundError(2, "No such file or directory", "x.txt"), 1, "x.txt: No such file or directory"),
        (RuntimeError("two\n  lines"), 1, "RuntimeError: two lines"),
        (RuntimeError("x" * 200_000), 1, f"RuntimeError: {'x' * 2000} … (and 198,000 more characters)"),
    ],
)
def test_errors_of_a_command(
    error: Exception,
    status: int,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An exception becomes one line; its traceback appears with debug=true only."""

    def fail(_: object) -> int:
        raise error

    monkeypatch.setitem(sys.modules, "matmill.help", types.SimpleNamespace(help_text=lambda *_: fail(None)))
    monkeypatch.delitem(sys.modules, "matmill.run", raising=False)
    assert cli.main(["--help"]) == status
    assert capsys.readouterr().err == f"matmill: {line}\n"
    assert cli.main(["--help", "train", "debug=true"]) == status
    assert "Traceback" in capsys.readouterr().err


def test_exit_statuses_pass_through(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A command's own exit status (75 of a preempted run) is kept; Ctrl-C is 130."""

    def leave(*_: object) -> str:
        raise SystemExit(75)

    def interrupt(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "matmill.help", types.SimpleNamespace(help_text=leave))
    with pytest.raises(SystemExit) as caught:
        cli.main(["--help"])
    assert caught.value.code == 75
    monkeypatch.setitem(sys.modules, "matmill.help", types.SimpleNamespace(help_text=interrupt))
    assert cli.main(["--help"]) == 130


def test_closed_pipe_is_quiet(tmp_path: Path) -> None:
    """`matmill --help | head -0` prints no traceback."""
    reader, writer = os.pipe()
    os.close(reader)
    found = subprocess.run(
        [sys.executable, "-m", "matmill", "--help"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=writer,
        stderr=subprocess.PIPE,
    )
    os.close(writer)
    assert found.stderr == b""
