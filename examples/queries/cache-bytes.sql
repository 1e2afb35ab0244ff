-- How many bytes does the cache take per token, and when the context is full? K and V, all layers, float32.
SELECT run, model, 2 * n_layer * n_embd * 4 AS bytes_per_token, 2 * n_layer * n_embd * 4 * n_ctx / 1048576.0 AS mebibytes_when_full
FROM run;
