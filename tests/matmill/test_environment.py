"""RUN/environment.json says what its report shows."""

import json
import platform

import torch

from matmill.environment import write_environment
from report.environment import rows
from report.read import read_run


def test_versions_and_devices_are_written_and_shown(tmp_path):
    write_environment(tmp_path)
    written = json.loads((tmp_path / "environment.json").read_text())
    assert written["python"] == platform.python_version()
    assert written["packages"]["torch"] == torch.__version__
    (tmp_path / "status.json").write_text("{}")
    shown = rows(read_run(tmp_path))
    assert shown["torch"] == torch.__version__
    assert shown["CPU"] == written["cpu"]


def test_a_package_that_is_missing_is_unknown_not_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("matmill.environment.PACKAGES", ("no-such-package",))
    write_environment(tmp_path)
    assert json.loads((tmp_path / "environment.json").read_text())["packages"] == {
        "no-such-package": None,
        "torch": torch.__version__,
    }
