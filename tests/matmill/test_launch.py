"""Which process of how many, read from the environments that torchrun, srun and others set."""

import pytest

from matmill.errors import ConfigError
from matmill.launch import Launch, launch_or_alone

TORCHRUN = {
    "RANK": "9",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "16",
    "LOCAL_WORLD_SIZE": "8",
    "TORCHELASTIC_RUN_ID": "job/7 a",
    "TORCHELASTIC_RESTART_COUNT": "2",
    "MASTER_ADDR": "host",
    "MASTER_PORT": "29500",
}
SRUN = {
    "SLURM_JOB_ID": "81",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
}
UUID = "2d7d68c6-b2e3-4be1-8b7e-5f1e3b9dda29"


def test_torchrun():
    """Global rank, machines, the attempt, and the job's name without what a path would read otherwise."""
    launch = Launch.read(TORCHRUN)
    assert launch == Launch("torchrun", 9, 1, 16, 8, "torchrun-job-7-a", 2)
    assert (launch.nodes, launch.is_main) == (2, False)
    assert Launch.read(TORCHRUN | {"RANK": "8", "LOCAL_RANK": "0"}).is_main is False  # first of the second machine only


def test_srun():
    """A step's tasks, not the job's; an array's tasks have names of their own."""
    assert Launch.read(SRUN) == Launch("slurm", 5, 1, 8, 4, "slurm-81")
    array = SRUN | {"SLURM_ARRAY_JOB_ID": "80", "SLURM_ARRAY_TASK_ID": "3"}
    assert Launch.read(array).job == "slurm-80_3"


@pytest.mark.parametrize("step", [None, "4294967291", "4294967290"])
def test_a_batch_script_or_an_interactive_shell_of_slurm_has_started_nothing(step):
    """Their variables speak of tasks that srun has yet to start."""
    environment = {name: value for name, value in SRUN.items() if name != "SLURM_STEP_ID"}
    assert Launch.read(environment | ({"SLURM_STEP_ID": step} if step else {})) == Launch()


def test_one_task_alone_is_free_to_start_more():
    """`srun -n1` is a remote shell: devices=N starts processes in it; the run is still named after the job."""
    alone = Launch.read(SRUN | {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"})
    assert alone == Launch(job="slurm-81")
    assert Launch.read({"RANK": "0", "WORLD_SIZE": "1"}) == Launch()


def test_torchrun_inside_slurm():
    """torchrun's ranks count; its own id names the run, unless it was made up and so changes with each requeue."""
    inside = SRUN | TORCHRUN
    assert Launch.read(inside).job == "torchrun-job-7-a"
    assert Launch.read(inside).rank == 9
    for made_up in (UUID, "none"):
        assert Launch.read(inside | {"TORCHELASTIC_RUN_ID": made_up}).job == "slurm-81"
    assert Launch.read(TORCHRUN | {"TORCHELASTIC_RUN_ID": UUID}).job == f"torchrun-{UUID}"


def test_ranks_without_torchrun():
    """RANK and WORLD_SIZE alone mean one process a machine; matmill's own children are told apart."""
    plain = {"RANK": "3", "WORLD_SIZE": "4"}
    assert Launch.read(plain) == Launch("environment", 3, 0, 4, 1)
    own = plain | {"LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "4", "MATMILL_PARENT": "1"}
    assert Launch.read(own) == Launch("matmill", 3, 3, 4, 4)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"WORLD_SIZE": "2"}, "RANK=, which should be a whole number"),
        ({"RANK": "x", "WORLD_SIZE": "2"}, "RANK=x"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "rank 2 of 2"),
        ({"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}, "LOCAL_WORLD_SIZE is not"),
        (TORCHRUN | {"WORLD_SIZE": "15"}, "every machine must have the same number"),
        (SRUN | {"SLURM_STEP_TASKS_PER_NODE": "5,3"}, "use --ntasks-per-node"),
    ],
)
def test_environments_that_contradict_themselves(environment, message):
    """One line says what is wrong; errors of such a process are still said by somebody."""
    with pytest.raises(ConfigError, match=message):
        Launch.read(environment)
    assert launch_or_alone(environment).is_main


def test_the_run_is_named_after_the_job():
    """All ranks and restarts come to one directory, or say that they cannot know it."""
    assert Launch().run_name("2026-01-01") == "2026-01-01"
    assert Launch.read(SRUN).run_name("2026-01-01") == "slurm-81"
    with pytest.raises(ConfigError, match=r"run_dir: must be set .* the 16 processes"):
        Launch.read(TORCHRUN | {"TORCHELASTIC_RUN_ID": "none"}).run_name("2026-01-01")


def test_devices_that_contradict_the_launcher():
    """What torchrun started counts; the same number or none may be given."""
    launch = Launch.read(TORCHRUN)
    launch.check_devices(8)
    launch.check_devices("auto")
    with pytest.raises(ConfigError, match="devices=4, but torchrun started 8 processes on this machine"):
        launch.check_devices(4)


def test_a_process_that_was_given_its_directory_needs_no_job_id(monkeypatch):
    """The processes of `devices=2` come to the directory that the command chose, also where `run_dir` was not set."""
    from matmill.compose import compose

    for name, value in {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="run_dir: must be set"):
        compose("train", [])
    monkeypatch.setenv("MATMILL_RUN_DIR", "runs/chosen")
    assert compose("train", []).run_dir == "runs/chosen"
