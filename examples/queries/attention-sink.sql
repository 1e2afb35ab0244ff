-- Attention sinks: how much weight does each head leave on row 0, on average, once there is a choice?
SELECT layer, head, round(avg(first_weight), 3) AS on_row_0, round(avg(1.0 / (s.cache_length_before + 1)), 3) AS if_all_were_alike
FROM head_summary AS h
JOIN step AS s ON s.run = h.run AND s.step = h.step
WHERE h.run = 1 AND h.step >= 4
GROUP BY layer, head
ORDER BY on_row_0 DESC;
