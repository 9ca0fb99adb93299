"""A checkpoint saved on any mesh continues on any other as if nothing had happened."""

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.gloo import in_group

STEPS, SAVED_AT = 20, 10

FP32 = {
    **{f"adamw {name}": (name, "adamw") for name in ("single", "ddp", "fsdp", "hsdp", "tensor", "fsdp_tensor")},
    **{f"adamw_8bit {name}": (name, "adamw_8bit") for name in ("single", "fsdp", "fsdp_tensor")},
}
"""Cases by name: the strategy and the optimizer."""


def config_of(case: str, folder: Path) -> Any:
    """The parity experiment in float32 on a strategy, saving in the middle."""
    from matmill.compose import compose
    from matmill.parity import STRATEGIES

    strategy, optimizer = FP32[case]
    words = ["experiment=parity", "precision=fp32", f"strategy={strategy}", f"optimizer={optimizer}"]
    words += [f"run_dir={folder}", f"checkpoint.every_steps={SAVED_AT}", "checkpoint.keep_last=9"]
    return compose("train", [*words, f"devices={STRATEGIES[strategy]}", f"trainer.max_steps={STEPS}"])


def straight(folder: Path, cases: list[str]) -> dict[str, list[float]]:
    """Uninterrupted runs, which leave a checkpoint each."""
    from matmill.parity import train

    return {case: train(config_of(case, folder), str(folder / case)) for case in cases}


def resumed(folder: Path, pairs: list[tuple[str, str]]) -> dict[tuple[str, str], list[float]]:
    """The second half of a run on the second case, from the first one's checkpoint."""
    from matmill.parity import train

    found = {}
    for saved, here in pairs:
        checkpoint = folder / saved / "checkpoints" / f"step-{SAVED_AT:08d}"
        found[saved, here] = train(config_of(here, folder), str(folder / f"{saved}-{here}"), str(checkpoint))
    return found


@pytest.mark.slow
def test_every_mesh_continues_from_every_other(tmp_path):
    """36 pairs with AdamW and 9 with its 8-bit state: the ten losses after the checkpoint.

    Bit for bit on the mesh that saved it; on another one within 1e-6, which is what summation in another order costs in
    float32 (an 8-bit state whose codes did not come over whole would be off by 1e-3 and more).
    """
    from matmill.parity import STRATEGIES

    by_world = {world: [c for c in FP32 if STRATEGIES[FP32[c][0]] == world] for world in (1, 2, 4)}
    losses: dict[str, list[float]] = {}
    for world, cases in by_world.items():
        losses |= in_group(world, straight, tmp_path, cases)[0]
    continued: dict[tuple[str, str], list[float]] = {}
    for world, cases in by_world.items():
        pairs = [(saved, here) for here in cases for saved in FP32 if FP32[saved][1] == FP32[here][1]]
        continued |= in_group(world, resumed, tmp_path, copy.copy(pairs))[0]
    assert len(continued) == 45
    for (saved, here), found in continued.items():
        expected = losses[here][SAVED_AT:]
        if saved == here:
            assert found == expected, (saved, here)
        else:
            assert found == pytest.approx(expected, rel=1e-6), (saved, here)
    assert losses["adamw single"][SAVED_AT:] != pytest.approx(losses["adamw single"][:SAVED_AT], rel=1e-3)
