"""Programs that load and run an ONNX export in its own directory, for its README."""

IMAGES = """
import json

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("model.onnx")
data = json.load(open("data.json"))
shape = (1, data["in_channels"], data["image_size"], data["image_size"])
images = np.random.rand(*shape).astype(np.float32)  # your images, values in 0..1
logits = session.run(["logits"], {"images": images})[0]
print(data["classes"][int(logits[0].argmax())])
"""

TEXT = """
import numpy as np
import onnxruntime
from tokenizers import Tokenizer

session = onnxruntime.InferenceSession("model.onnx")
tokenizer = Tokenizer.from_file("tokenizer.json")
cache = [entry for entry in session.get_inputs() if entry.name.startswith("past_")]
kind = np.float16 if cache[0].type == "tensor(float16)" else np.float32
past = {entry.name: np.zeros((1, entry.shape[1], 0, entry.shape[3]), kind) for entry in cache}
names = ["logits", *(name.replace("past", "present") for name in past)]
ids = tokenizer.encode("In the beginning").ids
new = ids
for _ in range(10):
    logits, *present = session.run(names, {"tokens": np.array([new], dtype=np.int64), **past})
    past = dict(zip(past, present))
    new = [int(logits[0, -1].argmax())]
    ids = ids + new
print(tokenizer.decode(ids))
"""
