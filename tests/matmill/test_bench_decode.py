"""`matmill bench decode` says what it read, in what time, and what a copy of that size took."""

import json
from pathlib import Path

import pytest
import torch

from lightning_modules.transformer.network import Transformer
from matmill import bench_decode
from matmill.errors import ConfigError
from tests.matmill.bench_config import bench_config, composed
from tests.matmill.trained_runs import text_run

LAYERS, WIDTH = 2, 32


def test_each_batch_has_its_bytes_and_rates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bytes are those of the tensors; rates, ratios and bytes of a row belong together."""
    config = bench_config(tmp_path, "model.vocab_size=300")
    assert bench_decode.run(config) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["batch"] for row in rows] == [1, 3]
    assert rows[0]["tokens_per_second_over_first"] == 1
    network = Transformer(
        vocab_size=300, d_model=WIDTH, n_layers=LAYERS, n_heads=2, max_sequence_length=32, tie_embeddings=True
    )
    weights = sum(parameter.nbytes for parameter in network.parameters())
    # The prompt's 8 tokens, the first new one, and those of two steps that are not timed; then 4 that are.
    seen = [8 + 1 + 2 + step for step in range(4)]
    cache = 2 * LAYERS * WIDTH * 4 * sum(seen) / 4
    for row in rows:
        assert row["weight_bytes_per_step"] == weights
        assert row["kv_bytes_per_step"] == pytest.approx(row["batch"] * cache)
        assert row["bytes_per_token"] == pytest.approx(weights / row["batch"] + cache)
        assert row["tokens_per_second"] == pytest.approx(row["batch"] / row["step_seconds_median"])
        assert row["achieved_over_copy"] == pytest.approx(
            row["achieved_bytes_per_second"] / row["copy_bytes_per_second"]
        )
        assert row["time_to_first_token_s"] > 0


def test_half_the_bits_are_half_the_bytes(tmp_path: Path) -> None:
    """bf16 reads half of what float32 reads, weights and cache alike."""
    words = ("model.vocab_size=300",)
    (full,), (half,) = (bench_decode.rows(bench_config(tmp_path, *words, batch=[2], dtype=d)) for d in ("fp32", "bf16"))
    for name in ("weight_bytes_per_step", "kv_bytes_per_step"):
        assert half[name] == full[name] / 2


def test_an_untied_input_table_is_not_read(tmp_path: Path) -> None:
    """Only the tokens' rows of it are: a step reads the same weights as with a tied table, whose matrix the head is."""
    tied, untied = (
        bench_decode.rows(bench_config(tmp_path, "model.vocab_size=300", f"model.tie_embeddings={tie}", batch=[1]))[0]
        for tie in ("true", "false")
    )
    assert untied["weight_bytes_per_step"] == tied["weight_bytes_per_step"]


def test_random_weights_follow_the_seed(tmp_path: Path) -> None:
    """The network is drawn, not what was in memory: the first weights are the same for the same seed."""
    config = bench_config(tmp_path, "model.vocab_size=300")
    one, two = (bench_decode._network(config) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert one.embedding.weight.std().item() == pytest.approx(0.02, rel=0.1)  # of 9,600 draws


def test_a_trained_run_decodes(tmp_path: Path) -> None:
    """With run= the weights and sizes are the run's, not the config's."""
    run = text_run(tmp_path)
    config = composed(run=str(run), batch=[2])
    (row,) = bench_decode.rows(config)
    assert row["kv_bytes_per_step"] == pytest.approx(2 * 2 * LAYERS * WIDTH * 4 * (8 + 1 + 2 + 1.5))


def test_a_prompt_beyond_the_context_is_refused(tmp_path: Path) -> None:
    """The window does not slide, so the steps would end early."""
    with pytest.raises(ConfigError, match=r"prompt_tokens=30 .* model.max_sequence_length=32"):
        bench_decode.rows(bench_config(tmp_path, "model.vocab_size=300", prompt_tokens=30))


def test_what_does_not_generate_text_is_refused() -> None:
    """AlexNet has no tokens to decode."""
    with pytest.raises(ConfigError, match="does not generate text"):
        bench_decode.rows(composed("experiment=alexnet_mnist"))


def test_the_table_tells_the_copy_speed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The denominator stands below the ratios."""
    bench_decode.run(bench_config(tmp_path, "model.vocab_size=300", format="table"))
    shown = capsys.readouterr().out
    assert "/ copying" in shown
    assert "GB/s" in shown
