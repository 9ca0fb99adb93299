"""Directories with quantized safetensors weights, however a library quantizes: what those exports have in common."""

import copy
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from export.chosen_layers import choose
from export.components import components
from export.exporter import Exporter, Task, Written
from export.huggingface_directory import SNIPPET, write_config, write_tokenizer
from export.huggingface_model import huggingface_model, huggingface_path
from export.image_directory import ImageClassifier, write_image_network
from export.layers import layers
from export.source import Source
from export.transformers_runtime import run
from lightning_modules.transformer.network import Transformer

WEIGHTS = "model.safetensors"
"""The file with all weights; what is not quantized is bfloat16 in it."""

IMAGE_SNIPPET = """
from pathlib import Path

import torch

from {module} import {name}  # of matmill

runtime = {name}()
runtime.load(Path("."))
data = runtime.images.data
images = torch.rand(1, data["in_channels"], data["image_size"], data["image_size"])  # your images, values in 0..1
print(data["classes"][int(runtime.logits(images)[0].argmax())])
"""


class QuantizedDirectoryExporter(Exporter):
    """Quantizes layers of a copy in bfloat16 and writes it: a transformer as a Hugging Face directory.

    Subclasses whose library does not need a class of `transformers` also take an AlexNet, with its linear layers
    quantized, for a runtime of this project.
    """

    quantizes = True
    takes_images = False

    @abstractmethod
    def quantize(
        self, model: nn.Module, names: Sequence[str], others: Sequence[str], source: Source, task: Task
    ) -> dict[str, Any]:
        """Quantize the layers `names` of `model` in place, and not the linear layers `others`.

        Returns `transformers`' `quantization_config` of such a model.
        """

    @abstractmethod
    def dequantized(self, layer: nn.Module) -> Tensor:
        """The weight (outputs, inputs) that a quantized layer stands for."""

    def bound_to(self, skip: Collection[str]) -> dict[str, str]:
        """Further layers that cannot be quantized because the user wants `skip` left alone, each with the reason."""
        return {}

    def objection(self, layer: nn.Linear) -> str | None:
        """Why the scheme cannot have `layer`; None if it can."""
        return None

    def runnable(self, model: nn.Module) -> nn.Module:
        """A copy of the quantized `model` to be run in this process; `model` itself stays as it is in the file."""
        return copy.deepcopy(model)

    def flattened(self, state: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
        """Plain tensors and the metadata that make up the file for a quantized model's `state`."""
        return state, {"format": "pt"}

    def supports(self, source: Source) -> bool:
        """Whether the network is matmill's transformer, or an image classifier where those are taken."""
        return isinstance(source.network, Transformer) or (self.takes_images and source.kind == "images")

    def write(self, source: Source, directory: Path, task: Task) -> Written:
        """Write weights, configuration and either tokenizer or `data.json`.

        The file is written before the model is run for the first time: running changes some libraries' weights.

        Raises:
            ValueError: no layer can be quantized.
            FileNotFoundError: a language model without its tokenizer.
        """
        from safetensors.torch import save_file

        chosen = choose(source.network, task.skip, self.objection, self.bound_to(task.skip))
        if not chosen.quantized:
            raise ValueError(f"{self.scheme} can quantize no layer: {', '.join(sorted(set(chosen.skipped.values())))}")
        text, tied = source.kind == "text", getattr(source.network, "tie_embeddings", False)
        model, names = _copy(source.network)
        # A tied head is no layer of ours, but one of theirs.
        others = [*(names[path] for path in chosen.skipped), *(["lm_head"] if tied else [])]
        configuration = self.quantize(model, [names[path] for path in chosen.quantized], others, source, task)
        state = model.state_dict()
        if tied:
            del state["lm_head.weight"]
        tensors, metadata = self.flattened(state)
        tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
        save_file(tensors, directory / WEIGHTS, metadata=metadata)
        _describe(source, directory, configuration)
        size = (directory / WEIGHTS).stat().st_size
        logits, snippet = self._runner(self.runnable(model), source)
        return Written(
            model_files=[WEIGHTS],
            layers_total=len(layers(source.network)),
            layers_quantized=len(chosen.quantized),
            layers_skipped=chosen.skipped,
            logits=logits,
            snippet=snippet,
            components=components({name: tensor.nbytes for name, tensor in tensors.items()}, size),
            embedding="bf16" if text else None,
            head="bf16" if text else None,
            stored=lambda: self._stored(model, {path: names[path] for path in chosen.quantized}),
        )

    def _runner(self, model: nn.Module, source: Source) -> tuple[Callable[[Tensor], Tensor], str]:
        """The model in this process, and how a user runs the file."""
        if isinstance(source.network, Transformer):
            device = next(model.parameters()).device
            return lambda inputs: run(model, inputs.to(device)).cpu(), SNIPPET
        module, _, name = self.runtime.rpartition(".")
        return ImageClassifier(model, source.data).logits, IMAGE_SNIPPET.format(module=module, name=name)

    def _stored(self, model: nn.Module, names: dict[str, str]) -> Iterable[tuple[str, Tensor]]:
        for path, name in names.items():
            yield path, self.dequantized(model.get_submodule(name)).float().cpu()


def _describe(source: Source, directory: Path, configuration: dict[str, Any]) -> None:
    """Write everything but the weights."""
    if isinstance(source.network, Transformer):
        write_config(source.network, source, directory, "bfloat16", configuration)
        write_tokenizer(source, directory)
    else:
        write_image_network(source, directory)


def _copy(network: nn.Module) -> tuple[nn.Module, dict[str, str]]:
    """A copy of the network in bfloat16 (a transformer as Hugging Face's), and what each layer is called in it."""
    paths = layers(network)
    if isinstance(network, Transformer):
        return huggingface_model(network, torch.bfloat16), {path: huggingface_path(path) for path in paths}
    return copy.deepcopy(network).to(torch.bfloat16).eval(), {path: path for path in paths}
