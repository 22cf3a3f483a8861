"""The KV cache: who holds which block (`blocks`), what is kept and found again (`prefix_cache`), how many
blocks there are (`pool`, `layout`), where their bytes lie (`storage`), what is behind the device (`host`)."""
