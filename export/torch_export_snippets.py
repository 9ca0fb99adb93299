"""Programs that load and run a `.pt2` export in its own directory, for its README: a beginning and an end."""

PT2 = """
import torch

model = torch.export.load("model.pt2").module()  # unpickles: only files of trusted origin
"""

INT8 = """
import logging

logging.getLogger("torch.utils._pytree").setLevel("ERROR")  # else it remarks on how torchao registers classes
import torchao.quantization  # defines 8-bit weights
"""
"""Comes first where there are such."""

AOTI = """
import torch
from torch._inductor import aoti_load_package

model = aoti_load_package("model.pt2")  # runs native code of the file: only files of trusted origin
"""

IMAGES = """
import json

data = json.load(open("data.json"))
image = torch.rand(1, data["in_channels"], data["image_size"], data["image_size"])  # your image, values in 0..1
with torch.inference_mode():
    logits = model(image)
print(data["classes"][int(logits[0].argmax())])
"""

TEXT = """
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("tokenizer.json")
ids = tokenizer.encode("In the beginning").ids
with torch.inference_mode():
    for _ in range(10):
        ids = ids + [int(model(torch.tensor([ids]))[0, -1].argmax())]
print(tokenizer.decode(ids))
"""
