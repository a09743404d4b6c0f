"""A GGUF file in llama.cpp."""

import secrets
from pathlib import Path
from typing import Any

import numpy as np


class LlamaCpp:
    """A GGUF file, loaded by llama.cpp (the package xllamacpp) on the CPU, with keys and values in float32."""

    def __init__(self, path: Path, *, vocab_size: int, context: int) -> None:
        """`context` is the longest text. Raises RuntimeError if llama.cpp cannot load the file."""
        import xllamacpp

        settings = xllamacpp.CommonParams()
        settings.model.path = str(path)
        settings.n_ctx, settings.n_parallel, settings.n_gpu_layers = context, 1, 0
        settings.cache_type_k = settings.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        settings.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        settings.warmup, settings.verbosity = False, -1
        settings.api_keys = [secrets.token_hex()]  # it opens a local port, which nobody is to use
        self._server, self._vocab_size = xllamacpp.Server(settings), vocab_size

    def log_probabilities(self, ids: np.ndarray) -> np.ndarray:
        """The logarithms of probabilities (B, T, V) after each of ids (B, T), with T less than the context."""
        return np.stack([np.stack([self.last_log_probabilities(row[: end + 1]) for end in range(len(row))]) for row in ids])

    def last_log_probabilities(self, ids: np.ndarray) -> np.ndarray:
        """The logarithms of probabilities (V,) after the last of ids (T,), with T less than the context."""
        entries = self._probabilities(ids.tolist())
        return np.array([entries[i]["logprob"] for i in range(self._vocab_size)], np.float32)

    def prompt_length(self, text: str) -> int:
        """The number of ids of a text."""
        return self._complete(text, 1)["usage"]["prompt_tokens"]

    def token_bytes(self) -> list[bytes]:
        """The bytes of each id."""
        entries = self._probabilities([0])
        return [bytes(entries[i]["bytes"]) for i in range(self._vocab_size)]

    def write(self, prompt: str, length: int) -> str:
        """The most likely `length` ids after a text, or fewer if llama.cpp ends it."""
        return self._complete(prompt, length)["choices"][0]["text"]

    def _probabilities(self, ids: list[int]) -> dict[int, dict[str, Any]]:
        """Everything about each id after `ids`."""
        # Probabilities are those before sampling. An id that ends within a character would be answered without them.
        whole = {"logit_bias": [[ord("a") if self._vocab_size == 256 else 0, 1000]]}
        answer = self._complete(ids, 1, n_probs=self._vocab_size, **whole)
        return {entry["id"]: entry for entry in answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]}

    def _complete(self, prompt: str | list[int], length: int, **others: Any) -> dict[str, Any]:
        return self._server.handle_completions({"prompt": prompt, "n_predict": length, "temperature": 0, **others})
