"""Reads the index of a distributed checkpoint without trusting it."""

import pickle
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta


class TensorReader(dcp.FileSystemReader):
    """Reads distributed checkpoints without trusting them: the index may only hold the classes that torch writes."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """The index of the checkpoint.

        Raises:
            pickle.UnpicklingError: the index names anything but torch's own index classes.
        """
        with (Path(self.path) / ".metadata").open("rb") as file:
            metadata: Metadata = _IndexUnpickler(file).load()
        if getattr(metadata, "storage_meta", None) is None:
            metadata.storage_meta = StorageMeta()
        metadata.storage_meta.load_id = self.load_id  # type: ignore[union-attr]
        return metadata


class _IndexUnpickler(pickle.Unpickler):
    """Finds only the classes an index is made of; all else would be code from a file."""

    modules = ("torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.filesystem")
    names = (("torch", "Size"), ("torch.serialization", "_get_layout"), ("pathlib", "PosixPath"))

    def find_class(self, module: str, name: str) -> Any:
        dtype = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        # A dotted name would walk on to whatever such a module has imported.
        own = module in self.modules and "." not in name
        found = super().find_class(module, name) if own or dtype or (module, name) in self.names else None
        if found is None or (own and getattr(found, "__module__", None) != module):
            raise pickle.UnpicklingError(f"the checkpoint's index names {module}.{name}, which it may not")
        return found
