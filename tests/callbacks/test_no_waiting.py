"""Between logging steps nothing that watches a run asks the device for a value, which would wait for it."""

from collections import Counter
from pathlib import Path
from typing import Any

import lightning.pytorch as L
from torch.utils._python_dispatch import TorchDispatchMode

from callbacks.anomalies import StopOnNonFinite
from callbacks.boundary import Boundary
from callbacks.communication import Communication
from callbacks.energy import Energy
from callbacks.exposed_communication import ExposedCommunication
from callbacks.ledger import Ledger
from callbacks.memory import Memory
from callbacks.metrics import MetricsLog
from callbacks.time_parts import TimeParts
from callbacks.utilization import WARM_UP_STEPS, Utilization
from tests.callbacks.tiny_run import HandClock, TinyModule, tiny_data, tiny_trainer


class Questions(TorchDispatchMode):
    """Counts by step how often a tensor's value is asked for: `item`, `float`, `bool`, `tolist` of a scalar."""

    def __init__(self) -> None:
        super().__init__()
        self.trainer: Any = None
        self.at: Counter[int] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.name in ("aten::_local_scalar_dense", "aten::equal", "aten::is_nonzero"):
            self.at[self.trainer.global_step] += 1
        return func(*args, **(kwargs or {}))


def test_values_are_asked_for_at_logging_steps_only(tmp_path: Path) -> None:
    """Rows at steps 5 and 10, saves at 7 and the end, and once the end of the warm-up: at no other step."""
    hand = HandClock()
    watching: list[L.Callback] = [
        *(Utilization(peak_flops=1e6, cache_dir=str(tmp_path)), TimeParts(), Memory(), Energy(), StopOnNonFinite()),
        *(Ledger(run_dir=str(tmp_path)), Communication(), ExposedCommunication(), MetricsLog(every_steps=5)),
        Boundary(directory=str(tmp_path / "checkpoints"), validate_every_steps=None, save_every_steps=7),
    ]
    trainer = tiny_trainer(watching, 10, log_every_n_steps=5)
    module = TinyModule(hand)
    module.gradient_clip_norm = 1.0
    questions = Questions()
    questions.trainer = trainer
    with questions:
        trainer.fit(module, datamodule=tiny_data(hand, 4, 2))
    assert questions.at[5] > 0
    assert set(questions.at) <= {0, WARM_UP_STEPS, 5, 7, 10}
