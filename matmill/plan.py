"""`matmill plan`: what a run should cost before it runs, on this machine or on hardware that only a table knows."""

import json
import sys
from collections.abc import Sequence
from typing import Any

from omegaconf import DictConfig
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from matmill import assemble
from matmill.compose import compose, create_loader
from matmill.errors import ConfigError
from matmill.fit_advice import nearest_fit
from matmill.outlook import outlook
from matmill.overrides import expand
from matmill.plan_table import show, show_variants
from matmill.planned_hardware import planned_hardware
from matmill.planned_step import planned_step
from matmill.prediction import predict
from matmill.schema import check
from matmill.settings import Plan


def run(overrides: Sequence[str], config_dir: str | None = None) -> int:
    """Print the plan of one config, as a table or as JSON."""
    config = compose("plan", overrides, config_dir)
    plan = make_plan(config, overrides, config_dir)
    if config.format == "json":
        print(json.dumps(plan, indent=2))
    else:
        show(plan, config)
    return 0


def run_variants(overrides: Sequence[str], config_dir: str | None = None) -> int:
    """Plan every combination of comma-separated values and print all in one table; 1 if one could not be planned."""
    combinations = expand(overrides, create_loader(config_dir))
    common = set(combinations[0]).intersection(*combinations[1:])
    plans: list[dict[str, Any]] = []
    failed = 0
    for combination in combinations:
        label = " ".join(word for word in combination if word not in common)
        try:
            config = compose("plan", combination, config_dir)
            config.advise = False
            plans.append({"variant": label} | make_plan(config, combination, config_dir))
        except ConfigError as error:
            failed += 1
            print(f"matmill plan: {label}: {error}", file=sys.stderr)
    if not plans:
        return 2
    if config.format == "json":
        print(json.dumps(plans, indent=2))
    else:
        show_variants(plans)
    return 1 if failed else 0


def make_plan(config: DictConfig, overrides: Sequence[str] = (), config_dir: str | None = None) -> dict[str, Any]:
    """The plan of a composed config: everything that plan.json holds.

    Raises:
        ConfigError: the config is not valid, or what it describes does not fit together.
    """
    check(config, Plan)
    assemble.quiet_libraries()
    hardware = planned_hardware(config)
    planned = planned_step(config, hardware)
    try:
        plan = predict(config, planned, hardware, replayed=config.measure)
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise ConfigError(
            f"this step needs the values of its tensors ({error}), so it cannot be run on fake ones: no plan"
        ) from error
    if plan["memory"]["fits"] is False and config.advise:
        plan["memory"]["advice"] = nearest_fit(overrides, config_dir, config, hardware)
    return plan | outlook(config, planned, hardware, plan)
