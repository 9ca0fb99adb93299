"""What wandb is told of a run, offline."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("wandb")

SCRIPT = """
import json, sys
from callbacks.wandb_log import Wandb
run = Wandb(save_dir=sys.argv[1], mode="offline", **json.loads(sys.argv[2])).experiment
print("told", json.dumps([run.group, run.config["optimizer"]["lr"]]))
run.finish()
"""


@pytest.mark.parametrize(("given", "group"), [({}, "sweep"), ({"group": "mine"}, "mine")])
def test_trials_of_a_sweep_are_a_group(given: dict[str, str], group: str, tmp_path: Path) -> None:
    """A sweep tells its trials its name by WANDB_RUN_GROUP, a group that the user sets comes first; and wandb knows the
    config, so that runs can be compared by what they were set to.
    """
    (tmp_path / "config.yaml").write_text("optimizer: {lr: 0.5}\n")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), json.dumps(given)], capture_output=True, text=True,
        env=os.environ | {"WANDB_RUN_GROUP": "sweep", "WANDB_SILENT": "true", "WANDB_MODE": "offline"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [told] = [line for line in done.stdout.splitlines() if line.startswith("told")]
    assert json.loads(told.removeprefix("told ")) == [group, 0.5]


def test_under_wandb_agent_the_run_has_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent names the run; a resume by hand goes on in it."""
    from callbacks.wandb_log import _kept_id

    monkeypatch.setenv("WANDB_RUN_ID", "abc12345")
    assert _kept_id(tmp_path / "run" / "wandb_id") == "abc12345"
    monkeypatch.delenv("WANDB_RUN_ID")
    assert _kept_id(tmp_path / "run" / "wandb_id") == "abc12345"
