"""A run's memory in its rows and its summary."""

from callbacks.memory import Memory
from tests.callbacks.tiny_run import VOCAB, WIDTH, HandClock, Rows, TinyModule, tiny_data, tiny_trainer


def test_rows_hold_the_parts_of_the_run_itself() -> None:
    """Two float32 matrices, as many gradients, no state of plain SGD; a CPU has no allocator that retries."""
    hand = HandClock()
    memory = Memory()
    rows = Rows(memory)
    trainer = tiny_trainer([memory, rows], 2)
    module = TinyModule(hand)
    trainer.fit(module, datamodule=tiny_data(hand, 4, 4))
    weights = 4 * 2 * VOCAB * WIDTH
    for row in rows.rows:
        assert row["memory/weights_gib"] == row["memory/gradients_gib"] == weights / 2**30
        assert row["memory/optimizer_gib"] == 0
        assert row["memory/now_gib"] > 0
        assert row["memory/peak_rss_gib"] > 0
        assert "memory/allocator_retries" not in row
    summary = memory.summary(trainer, module)
    assert summary["memory_by_part"] == {"weights": weights, "gradients": weights, "optimizer": 0}
    assert summary["peak_memory_bytes"] > 0
    assert summary["allocator_retries"] is None
