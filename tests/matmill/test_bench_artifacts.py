"""What `matmill bench decode artifact=[...]` calls the artifacts."""

from pathlib import Path

from matmill.bench_artifacts import distinct_names


def test_a_name_is_no_longer_than_it_must_be() -> None:
    """Artifacts of several runs are told apart, also where one path is the end of another; others keep their name."""
    paths = [
        Path("/runs/a/exports/onnx_int8"),
        Path("/runs/b/exports/onnx_int8"),
        Path("/runs/b/exports/onnx_fp32"),
        Path("/b/exports/onnx_int8"),
        Path("/runs/b/exports/onnx_int8"),
    ]
    assert distinct_names(paths) == [
        "a/exports/onnx_int8",
        "runs/b/exports/onnx_int8",
        "onnx_fp32",
        "/b/exports/onnx_int8",
        "runs/b/exports/onnx_int8 (2)",
    ]
