"""Keep secrets out of what a run writes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

HIDDEN = "***"
LAST_WORDS = {
    "password",
    "passwd",
    "passphrase",
    "secret",
    "secrets",
    "token",
    "apikey",
    "credential",
    "credentials",
}
LAST_PAIRS = {("api", "key"), ("access", "key"), ("secret", "key"), ("private", "key"), ("auth", "key")}
VOCABULARY = {
    "pad",
    "bos",
    "eos",
    "unk",
    "sep",
    "cls",
    "mask",
    "special",
    "separator",
    "stop",
    "end",
    "start",
    "begin",
}
URL_LOGIN = re.compile(r"(?P<scheme>[A-Za-z][\w+.-]*://)[^/\s:@]*:[^/\s@]+@")
URL_QUERY = re.compile(r"(?P<name>[?&][\w-]*(?:token|key|secret|password|signature)=)[^&\s]+", re.IGNORECASE)


def redact(config: DictConfig) -> DictConfig:
    """A copy of `config` in which secrets read ``***``.

    Secret are the values of keys such as `password`, `hub_token`, `api_key` (but not `pad_token`,
    `loss_chunk_tokens` or `tokenizer`), logins and keys inside URLs, and any text that repeats a secret
    environment variable.
    """
    known = [value for name, value in os.environ.items() if is_secret(name) and len(value) >= 8]
    container = _redact(OmegaConf.to_container(config, resolve=False), hide=False, known=known)
    redacted = OmegaConf.create(container)
    assert isinstance(redacted, DictConfig)
    return redacted


def redact_word(word: str) -> str:
    """The override `word` with ``***`` for its value where that is secret."""
    key, equals, value = word.partition("=")
    return f"{key}{equals}{_redact(value, is_secret(key.rpartition('.')[2]), known=[])}" if equals else word


def is_secret(key: str) -> bool:
    """Whether a key of this name holds a secret: its last words say so, as in `WANDB_API_KEY`."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key)
    words = [word for word in re.split(r"[^a-z0-9]+", spaced.lower()) if word]
    if not words or VOCABULARY & set(words):
        return False
    return words[-1] in LAST_WORDS or tuple(words[-2:]) in LAST_PAIRS


def _redact(value: Any, hide: bool, known: list[str]) -> Any:
    if isinstance(value, Mapping):
        return {name: _redact(child, hide or is_secret(str(name)), known) for name, child in value.items()}
    if isinstance(value, list):
        return [_redact(child, hide, known) for child in value]
    if value is None or isinstance(value, bool):
        return value
    if hide:
        return HIDDEN
    if not isinstance(value, str):
        return value
    for secret in known:
        value = value.replace(secret, HIDDEN)
    return URL_QUERY.sub(rf"\g<name>{HIDDEN}", URL_LOGIN.sub(rf"\g<scheme>{HIDDEN}@", value))
