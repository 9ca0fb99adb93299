"""Text: files to documents, documents to tokens, tokens to sequences."""

from datamodules.text.module import TextData

__all__ = ["TextData"]
