"""How much memory a run uses: now, at most, and for what."""

from typing import Any

import lightning.pytorch as L

from utilization.memory import allocator_retries, memory_by_part, memory_bytes, peak_memory_bytes

_GIB = 2**30


class Memory(L.Callback):
    """Memory of this process's device; on a CPU its resident set. Parts are counted from the tensors themselves.

    What is neither weights, gradients nor optimizer state is activations and what the libraries need.
    """

    def metrics(self, trainer: L.Trainer, module: L.LightningModule) -> dict[str, float]:
        """Figures for one row of the log, in GiB."""
        device = trainer.strategy.root_device
        peak = "memory/peak_rss_gib" if device.type == "cpu" else "memory/peak_gib"
        row = {peak: peak_memory_bytes(device) / _GIB}
        now, retries = memory_bytes(device), allocator_retries(device)
        if now is not None:
            row["memory/now_gib"] = now / _GIB
        parts = memory_by_part(module, trainer.optimizers)
        row |= {f"memory/{part}_gib": count / _GIB for part, count in parts.items()}
        return row if retries is None else row | {"memory/allocator_retries": float(retries)}

    def summary(self, trainer: L.Trainer, module: L.LightningModule) -> dict[str, Any]:
        """Bytes at the end of the run; retries are unknown (null) where no such allocator is."""
        device = trainer.strategy.root_device
        return {
            "peak_memory_bytes": peak_memory_bytes(device),
            "memory_by_part": memory_by_part(module, trainer.optimizers),
            "allocator_retries": allocator_retries(device),
        }
