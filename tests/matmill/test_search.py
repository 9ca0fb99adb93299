"""A search's command line: spaces over the shipped configs, samplers and pruners as shipped, the best as experiment."""

from pathlib import Path
from typing import Any

import optuna
import pytest
from omegaconf import OmegaConf

from matmill.best import write_best
from matmill.compose import CONF_DIR, compose, create_loader
from matmill.multirun import split_own
from matmill.overrides import parse_overrides
from matmill.schema import check
from matmill.search import Asked, _sampler_maker, read_search
from matmill.targets import build
from sweeps.storage import join_trial, quiet
from sweeps.study import SharedStudy
from sweeps.trial import Outcome


def options(group: str) -> list[str]:
    """The names of a group's options."""
    return sorted(file.stem for file in (CONF_DIR / "sweep" / group).glob("*.yaml"))


def ask(*words: str) -> Asked:
    """The command line of a search, read."""
    own, others = split_own(parse_overrides(["hydra/sweeper=optuna", *words], create_loader()))
    return read_search(own, others)


def run(folder: Path, asked: Asked, count: int) -> SharedStudy:
    """A study of `count` trials whose loss is their number's distance from three, told after six evaluations."""
    settings = asked.config.sweep
    pruner = build(settings.pruner)
    study = SharedStudy(
        folder, asked.space, _sampler_maker(asked.config), pruner, metrics=["val_loss"], directions=["minimize"],
        n_trials=count, seed=settings.seed,
    )  # fmt: skip
    while (trial := study.claim()) is not None:
        own = join_trial(study.url, study.name, trial.number, pruner)
        loss, pruned = float(abs(trial.number - 3)), False
        for evaluation in range(1, 7):
            own.report(loss + evaluation / 1000, evaluation)
            pruned = pruned or own.should_prune()
        study.tell(trial, Outcome("pruned" if pruned else "finished"), None if pruned else [loss])
    return study


@pytest.mark.parametrize("sampler", options("sampler"))
def test_every_sampler_draws_points_that_compose(sampler: str, tmp_path: Path) -> None:
    """As shipped, over whole numbers, fractions and choices: ten different points, each a valid config."""
    words = ["model.n_layers=range(1,9)", "model.tie_embeddings=true,false"]
    words += ["optimizer.lr=range(0.001,0.005,0.001)" if sampler == "grid" else "optimizer.lr=interval(1e-4,1e-2)"]
    study = run(tmp_path, ask(f"sweep/sampler={sampler}", *words), 10)
    assert len({str(trial.params) for trial in study.trials()}) == 10
    for trial in study.trials()[::4]:
        check(compose("train", study.space.words(trial.params)))


@pytest.mark.parametrize("pruner", options("pruner"))
def test_every_pruner_stops_what_is_worse(pruner: str, tmp_path: Path) -> None:
    """As shipped: the best is never pruned, and all but `none` prune something."""
    asked = ask(f"sweep/pruner={pruner}", "optimizer.lr=interval(1e-4,1e-2)", "trainer.validate_every_steps=20")
    study = run(tmp_path, asked, 20)
    statuses = [row.status for row in study.rows()]
    if pruner == "patient":  # every loss above rises
        assert set(statuses) == {"pruned"}
        return
    assert statuses[3] == "finished"
    assert study.best()[0].number == 3
    assert ("pruned" in statuses) == (pruner != "none")


def test_keys_of_one_model_are_swept_where_it_is() -> None:
    """Two experiments with different models: every point composes, though no key exists in both."""
    space = ask("experiment=alexnet_mnist,parity", "model.width=0.25,0.5", "model.n_layers=1,2", "seed=1,2").space
    points = list(space.points())
    assert len(points) == 8
    for point in points:
        assert ("model.width" in point) == (point["experiment"] == "alexnet_mnist")
        check(compose("train", space.words(point)))


@pytest.mark.parametrize(
    "words",
    [
        ["optimizer.lr=0.002", "seed=3"],
        ["experiment=alexnet_mnist", "schedule=plateau", "logger=[csv]", "model.width=0.5"],
        ["model=llama3_8b", "+callbacks.more={_target_: callbacks.memory.Memory}", "callbacks.energy=null"],
        ["optimizer=sgd", "optimizer._target_=torch.optim.RMSprop", "run_name='a: b'", "cache_dir=x"],
    ],
)
def test_the_best_is_an_experiment_of_its_own(words: list[str], tmp_path: Path) -> None:
    """Read back through --config-dir it composes to the same config, whatever experiment and groups it came from."""
    write_best(tmp_path, "best", "Trial 3", words, None)
    found, wanted = (compose("train", *args) for args in ((["experiment=best"], str(tmp_path)), (words,)))
    places: list[Any] = ["run_dir", "sweep_dir"]
    first, second = (OmegaConf.to_container(config, resolve=False) for config in (found, wanted))
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert {k: v for k, v in first.items() if k not in places} == {k: v for k, v in second.items() if k not in places}


def test_a_deleted_key_is_said(tmp_path: Path) -> None:
    """An experiment cannot take a key away, so the file says which it would have to."""
    file = write_best(tmp_path, "best", "Trial 3", ["~optimizer.fused"], None)
    assert "'~optimizer.fused'" in file.read_text()


def test_optuna_stays_quiet(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """None of its log lines mix with the sweep's own."""
    quiet()
    run(tmp_path, ask("sweep/sampler=gp", "optimizer.lr=interval(1e-4,1e-2)"), 3)
    assert capfd.readouterr().err == ""
    assert optuna.logging.get_verbosity() == optuna.logging.ERROR
