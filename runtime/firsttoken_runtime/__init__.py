"""The inference runtime: an OpenAI server process and an engine process with a paged KV cache."""
