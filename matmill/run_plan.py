"""What a run is expected to cost, written into its directory before it starts."""

import sys
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from matmill.errors import describe
from matmill.planned_hardware import planned_hardware
from matmill.planned_step import planned_step
from matmill.prediction import predict
from matmill.quantities import size
from matmill.run import write_json

NAME = "plan.json"


def write_run_plan(config: DictConfig, directory: Path, devices: int) -> None:
    """Write RUN/plan.json, and say so if the step is not expected to fit into memory.

    Never raises: a network that needs the values of its tensors cannot be run on fake ones, and trains all the same.
    """
    try:
        config = config.copy()
        OmegaConf.set_struct(config, False)
        config.devices = devices
        hardware = planned_hardware(config, thorough=False)
        plan = predict(config, planned_step(config, hardware), hardware, replayed=False)
        write_json(directory / NAME, plan)
    except Exception as error:
        reason = (describe(error).splitlines() or [type(error).__name__])[0]
        print(f"no plan.json: the step cannot be run on fake tensors ({reason})", file=sys.stderr)
        return
    if plan["idle_devices"]:
        print(
            f"{plan['idle_devices']} of {devices} devices get no samples: data.global_batch_size="
            f"{config.data.global_batch_size} has too few micro-batches of {config.data.micro_batch_size}; lower "
            "data.micro_batch_size",
            file=sys.stderr,
        )
    memory = plan["memory"]
    if memory["fits"] is False:
        print(
            f"expected memory of a device: {size(memory['peak_bytes'])}, of which {size(memory['usable_bytes'])} are "
            "usable: it may not fit; matmill plan with the same arguments says what would",
            file=sys.stderr,
        )
