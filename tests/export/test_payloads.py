"""Loading an export runs nothing that somebody put there: no pickle is read, beside the weights or in their place."""

import pickle
from pathlib import Path

import pytest

from export.exporter import Task
from export.runtimes import make_runtime
from matmill.export_choice import shipped
from tests.export.sources import image_source, text_source

EXPORTS = shipped()
FAMILIES = [
    *(("safetensors_bf16", "text"), ("bnb_nf4", "text"), ("bnb_nf4", "images"), ("torchao_int8_weight_only", "text")),
    *(("torchao_int8_weight_only", "images"), ("compressed_w8a8", "text"), ("gguf_q8_0", "text")),
    *(("onnx_fp32", "text"), ("onnx_fp32", "images"), ("executorch_fp32", "images")),
]
NEIGHBOURS = (
    *("pytorch_model.bin", "model.pt", "model.bin", "consolidated.00.pth", "training_args.bin", "adapter_model.bin"),
    *("quantization.pkl", "tokenizer.pkl", "state_dict.pth", "__init__.py", "conftest.py", "sitecustomize.py"),
)


class Payload:
    """Leaves a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.file,))


@pytest.mark.parametrize(("name", "kind"), FAMILIES, ids=lambda part: str(part))
def test_no_payload_runs(name: str, kind: str, tmp_path: Path) -> None:
    """With payloads beside them the files load as before; a payload in a model file's place is refused."""
    exporter = EXPORTS[name]
    if (reason := exporter.unavailable()) is not None:
        pytest.skip(reason)
    data, directory, mark = tmp_path / "data", tmp_path / "artifact", tmp_path / "ran"
    data.mkdir()
    directory.mkdir()
    source = text_source(data) if kind == "text" else image_source(data)
    written = exporter.write(source, directory, Task())
    for neighbour in NEIGHBOURS:
        code = f"open({str(mark)!r}, 'w')\n".encode()
        (directory / neighbour).write_bytes(code if neighbour.endswith(".py") else pickle.dumps(Payload(mark)))
    runtime = make_runtime(exporter.runtime)
    assert runtime.trusted_only is False
    runtime.load(directory)
    runtime.logits(source.held_out.inputs[:1])
    for file in written.model_files:
        (directory / file).write_bytes(pickle.dumps(Payload(mark)))
    with pytest.raises(Exception):  # noqa: B017, PT011  each library has its own
        make_runtime(exporter.runtime).load(directory)
    assert not mark.exists()
    pickle.loads(pickle.dumps(Payload(mark)))
    assert mark.exists()  # the payload works


def test_formats_that_hold_code_say_so() -> None:
    """torch's own program formats unpickle or load native code: they ask to be trusted first."""
    trusted = {name for name, exporter in EXPORTS.items() if make_runtime(exporter.runtime).trusted_only}
    assert trusted == {name for name in EXPORTS if name.startswith(("pt2_", "aoti_"))}
