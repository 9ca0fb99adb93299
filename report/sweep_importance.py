"""How much each parameter decides over an objective, by Optuna's evaluators."""

from __future__ import annotations

import importlib.util
import json
import math
import warnings
from dataclasses import dataclass, field
from typing import Any

from report import text
from report.figure import Figure, bars_axis, bars_height, label
from report.sweep import Sweep, Trial
from report.sweep_scale import is_wide

LEAST_TRIALS = 10
"""Finished trials below which the shares would be noise."""

_TREES_SEED = 0

_TOP, _TOP_TRIALS = 0.1, 5
"""PED-ANOVA looks at the best tenth, or so many trials if that is more: fewer give no density."""


@dataclass(frozen=True)
class Importance:
    """Shares by parameter, the greatest first; they add up to 1. method: in words. problem: why there are none."""

    shares: dict[str, float] = field(default_factory=dict)
    method: str = ""
    problem: str = ""


def assess(sweep: Sweep, objective: int) -> Importance:
    """The importance of each parameter for one objective, from the finished trials.

    With scikit-learn fANOVA (Hutter et al. 2014, "An Efficient Approach for Assessing Hyperparameter Importance"):
    the share of the objective's variance over the whole space. Without it, or where a parameter exists in a part of
    the space only, PED-ANOVA (Watanabe et al. 2023, arXiv:2304.10255): how far the best trials' values lie from all's.
    """
    trials = sweep.finished
    values = [float(trial.values[objective] or 0.0) for trial in trials]
    if len(trials) < LEAST_TRIALS:
        return Importance(problem=f"unknown: {len(trials)} finished trials, it takes {LEAST_TRIALS}")
    varied = [axis for axis in sweep.axes if len({str(trial.parameters.get(axis.name)) for trial in trials}) > 1]
    if len(varied) < 2:
        return Importance(problem="unknown: fewer than two parameters differ between the finished trials")
    if min(values) == max(values):
        return Importance(problem="unknown: all finished trials have the same value")
    conditional = any(axis.name not in trial.parameters for axis in varied for trial in trials)
    forest = not conditional and importlib.util.find_spec("sklearn") is not None
    logarithm = forest and is_wide(values)
    names = [axis.name for axis in varied]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = _evaluate(sweep, objective, trials, [math.log(v) for v in values] if logarithm else values, forest)
    shares = {name: share for name, share in found.items() if name in names and math.isfinite(share)}
    total = sum(shares.values())
    if not total > 0:
        return Importance(problem="unknown: the finished trials show no difference between parameters")
    if forest:
        method = f"fANOVA: share of the variance of {'the logarithm of ' if logarithm else ''}the objective"
    else:
        why = "parameters that exist in a part of the space" if conditional else "scikit-learn is not installed"
        method = f"PED-ANOVA ({why}): what tells the best {_quantile(len(trials)):.0%} from all"
    shares = dict(sorted(((name, share / total) for name, share in shares.items()), key=lambda pair: -pair[1]))
    return Importance(shares, f"{method}; {len(trials)} finished trials")


def _evaluate(sweep: Sweep, objective: int, trials: list[Trial], values: list[float], forest: bool) -> dict[str, float]:
    import optuna
    from optuna.distributions import json_to_distribution
    from optuna.importance import FanovaImportanceEvaluator, PedAnovaImportanceEvaluator

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    distributions = {axis.name: json_to_distribution(json.dumps(axis.distribution)) for axis in sweep.axes}
    study = optuna.create_study(direction="maximize" if sweep.objectives[objective].maximize else "minimize")
    for trial, value in zip(trials, values, strict=True):
        known = {name: distributions[name] for name in trial.parameters}
        study.add_trial(optuna.trial.create_trial(params=trial.parameters, distributions=known, value=value))
    evaluator: Any = PedAnovaImportanceEvaluator(target_quantile=_quantile(len(trials)))
    if forest:
        evaluator = FanovaImportanceEvaluator(seed=_TREES_SEED)
    return dict(optuna.importance.get_param_importances(study, evaluator=evaluator))


def _quantile(count: int) -> float:
    return max(_TOP, min(_TOP_TRIALS / count, 0.5))


def draw(sweep: Sweep, importances: list[Importance]) -> list[Figure]:
    """A figure of bars for each objective whose importances are known."""
    figures = []
    for index, importance in enumerate(importances):
        if not importance.shares:
            continue
        shares = list(importance.shares.values())
        trace = {
            "type": "bar",
            "orientation": "h",
            "name": "importance",
            "y": list(range(len(shares))),
            "x": shares,
            "text": [text.share(share) for share in shares],
            "textposition": "auto",
            "textangle": 0,
            "insidetextfont": {"color": "var(--panel)"},
            "customdata": [label(name) for name in importance.shares],
            "marker": {"color": "var(--blue)"},
            "hovertemplate": "%{customdata}: %{x:.1%}<extra></extra>",
        }
        layout = {
            "hovermode": "closest",
            "barmode": "stack",
            "xaxis": {"tickformat": ".0%", "rangemode": "tozero"},
            "yaxis": bars_axis(list(importance.shares)),
        }
        metric = sweep.objectives[index].metric
        title = "Importance of parameters" + (f" for {metric}" if len(importances) > 1 else "")
        said = ", ".join(f"{name} {text.share(share)}" for name, share in importance.shares.items())
        height = bars_height(len(shares))
        caption = f"{importance.method}."
        wide = len(importances) % 2 == 1
        figures.append(Figure(f"importance-{index}", title, said, [trace], layout, caption, height, False, wide))
    return figures


def notes(sweep: Sweep, importances: list[Importance]) -> list[str]:
    """What is not known, in a line each."""
    pairs = zip(sweep.objectives, importances, strict=True)
    return [f"Importance for {objective.metric}: {one.problem}." for objective, one in pairs if one.problem]
