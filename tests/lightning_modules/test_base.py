"""One optimizer step has the gradient of the plain mean over its predictions, however it is cut into micro-batches."""

import lightning.pytorch as L
import pytest
import torch

from callbacks.boundary import Boundary
from strategies import SingleDevice
from tests.resume.toy import ToyData, ToyModule, ToyNetwork


class Quiet(ToyNetwork):
    """The toy network without dropout, whose masks depend on the cutting."""

    def __init__(self):
        super().__init__()
        self.dropout = torch.nn.Identity()


class QuietModule(ToyModule):
    """Trains `Quiet`."""

    network_class = Quiet


def losses(tmp_path, micro, steps=8):
    """Training losses of a run with micro-batches of `micro` samples."""
    found = []

    class Keep(L.Callback):
        def on_train_batch_end(self, trainer, module, *_):
            found.append(float(module.step_metrics["train/loss"]))

    data = ToyData(global_batch_size=16, micro_batch_size=micro)
    data.prepare()
    data.max_steps = steps
    module = QuietModule(optimizer=lambda groups: torch.optim.SGD(groups, lr=1.0), seed=1)
    trainer = L.Trainer(
        accelerator="cpu", strategy=SingleDevice(), max_steps=steps, max_epochs=-1, val_check_interval=10**6,
        check_val_every_n_epoch=None, use_distributed_sampler=False, enable_checkpointing=False, logger=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
        callbacks=[Keep(), Boundary(directory=str(tmp_path / f"{micro}"), validate_every_steps=None)],
    )  # fmt: skip
    trainer.fit(module, datamodule=data)
    return found, module


def test_accumulation_weighs_tokens(tmp_path):
    """Micro-batches of 16, 4, 3 and 1 give the same losses, the epoch's short last window included.

    Tolerance: each loss is a mean of about 100 float32 terms near 3.5; 8 steps carry their summation error along.
    """
    reference, _ = losses(tmp_path, 16)
    assert reference[-1] < reference[0]
    for micro in (4, 3, 1):
        torch.testing.assert_close(losses(tmp_path, micro)[0], reference, rtol=2e-6, atol=0)


@pytest.mark.parametrize("micro", [11, 4, 1])
def test_validation_loss_does_not_depend_on_the_batch_size(tmp_path, micro):
    """The held-out loss is the mean over all predictions, not over batches."""
    _, module = losses(tmp_path, micro, steps=4)
    data = ToyData(global_batch_size=16, micro_batch_size=1)
    data.prepare()
    batch = data.val_set.collate([data.val_set.sample(0, i) for i in range(11)])
    expected = module.network_loss(module.network, batch) / batch["units"]
    assert module.val_metrics["val/loss"] == pytest.approx(float(expected), rel=1e-6)
