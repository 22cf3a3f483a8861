"""The KV cache: who holds which block (`blocks`), how many (`pool`), where the bytes lie (`storage`)."""
