"""What a run knows of the sweep that has started it as one of its trials."""

import json
import os

from lightning.pytorch.utilities import rank_zero_warn

from callbacks.pruning import Pruning
from matmill.launch import Launch
from matmill.targets import build


def pruning_of_sweep(allow: list[str]) -> list[Pruning]:
    """The callback by which a trial of a sweep with a pruner reports; none in any other run.

    The sweep tells its trial's process where to report by the environment, since the storage's URL may hold a login.
    Of several processes the first reports. `allow`: packages that the pruner's `_target_` may come from.
    """
    told = os.environ.get("MATMILL_TRIAL")
    if told is None:
        return []
    trial = json.loads(told)
    if not Launch.read().is_main:
        return [Pruning(trial["metric"], None)]
    from sweeps.storage import join_trial, quiet

    quiet()
    pruner = build(trial["pruner"], allow)
    try:
        joined = join_trial(trial["storage"], trial["study"], trial["number"], pruner)
    except Exception as error:  # a database's, of whatever kind
        rank_zero_warn(f"the sweep's study cannot be reached, nothing is pruned: {type(error).__name__}")
        joined = None
    return [Pruning(trial["metric"], joined)]
