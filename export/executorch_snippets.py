"""Programs that load and run an ExecuTorch export in its own directory, for its README."""

IMAGES = """
import json
import logging

import torch

logging.getLogger("torch.utils._pytree").setLevel("ERROR")  # else it remarks on how classes are registered
from executorch.runtime import Runtime

forward = Runtime.get().load_program("model.pte").load_method("forward")
data = json.load(open("data.json"))
image = torch.rand(1, data["in_channels"], data["image_size"], data["image_size"])  # your image, values in 0..1
logits = forward.execute((image,))[0]
print(data["classes"][int(logits[0].argmax())])
"""

TEXT = """
import logging

import torch

logging.getLogger("torch.utils._pytree").setLevel("ERROR")  # else it remarks on how classes are registered
from executorch.runtime import Runtime
from tokenizers import Tokenizer

forward = Runtime.get().load_program("model.pte").load_method("forward")
tokenizer = Tokenizer.from_file("tokenizer.json")
ids = tokenizer.encode("In the beginning").ids
new, start = ids, 0
for _ in range(10):
    logits = forward.execute((torch.tensor([new]), torch.tensor([start])))[0]
    start += len(new)
    new = [int(logits[0, -1].argmax())]
    ids = ids + new
print(tokenizer.decode(ids))
"""
